"""Vector files of every section, small enough to be computed in seconds."""

import copy
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from golfray.selftest.runner import BASELINE_VECTORS
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """Every test here."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def shipped() -> dict[str, Any]:
    """The shipped vectors."""
    return json.loads(BASELINE_VECTORS.read_text(encoding="utf-8"))


@pytest.fixture
def small(shipped: dict[str, Any]) -> dict[str, Any]:
    """All twelve sections but real_text, without the cases of the full baseline shape where others remain."""
    content = copy.deepcopy(shipped)
    content["forward"] = content["forward"][:2]
    content["int8_zlib"] = content["int8_zlib"][1:]
    content["initial_values"] = content["initial_values"][1:]
    return content


@pytest.fixture
def write(tmp_path: pathlib.Path):
    """Write a vector file and return its path."""

    def write_content(content: dict[str, Any]) -> pathlib.Path:
        path = tmp_path / "vectors.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write_content
