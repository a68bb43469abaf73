"""Arguments that no file or record can be called after are refused before anything starts."""

import os
import pathlib

import pytest

from golfray.data.check import CheckRequest, check_corpus
from golfray.data.errors import DataError
from golfray.data.own_text import OwnText, build_own_text
from golfray.data.published_manifest import choose_dataset
from golfray.data.source_argument import parse_source
from golfray.data.text_files import TextFormat
from tests.data.published_layout import plan

ODD = os.fsdecode(b"\xff")
LONG = "n" * 250


def build(name: str = "x", out: pathlib.Path = pathlib.Path("/nowhere/x"), **values: object) -> None:
    build_own_text(OwnText(**{"name": name, "files": [pathlib.Path("absent.txt")], **values}), out)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"files": [pathlib.Path(f"{ODD}.jsonl")]}, "FILE"),
        ({"val_files": (pathlib.Path(f"{ODD}.jsonl"),)}, "--val"),
        ({"name": ODD}, "--name"),
        ({"out": pathlib.Path(f"/nowhere/{ODD}")}, "--out"),
        ({"form": TextFormat("text", ODD)}, "--separator"),
        ({"form": TextFormat(ODD, None)}, "--text-key"),
        ({"tokenizer": pathlib.Path(ODD)}, "--tokenizer"),
    ],
)
def test_what_is_not_utf8(values: dict[str, object], what: str) -> None:
    with pytest.raises(DataError, match=rf"^{what}: must be UTF-8, got ") as refused:
        build(**values)  # type: ignore[arg-type]
    assert refused.value.exit_code == 2
    assert str(refused.value).isprintable()


def test_what_is_not_utf8_elsewhere(tmp_path: pathlib.Path) -> None:
    (tmp_path / ODD).mkdir()
    with pytest.raises(DataError, match="DIR: must be UTF-8"):
        check_corpus(CheckRequest(tmp_path / ODD))
    with pytest.raises(DataError, match="--tokenizer: must be UTF-8"):
        check_corpus(CheckRequest(tmp_path, tokenizer=tmp_path / ODD))
    with pytest.raises(DataError, match="SOURCE: must be UTF-8"):
        parse_source(str(tmp_path / ODD), None, None, {})
    with pytest.raises(DataError, match="--to: must be UTF-8"):
        plan(tmp_path, tmp_path / ODD)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": LONG}, "--name: the name nnnnnnnnnnnnnnnnnnnn... is too long: 250 bytes, must be at most 200"),
        ({"name": "語" * 67}, "--name: the name .* is too long: 201 bytes"),
        ({"out": pathlib.Path("/nowhere") / LONG}, "--out: the name .* is too long: 250 bytes, must be at most 200"),
        ({"out": pathlib.Path("/nowhere") / (LONG * 2) / "x"}, "--out: the name .* is too long: 500 bytes"),
        ({"out": pathlib.Path("/nowhere/..")}, "--out /nowhere/..: must end in the name of the folder to write"),
        ({"out": pathlib.Path("/nowhere/.."), "name": ".."}, "--out /nowhere/..: must end in the name of the folder"),
    ],
)
def test_names_that_no_folder_can_have(values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        build(**values)  # type: ignore[arg-type]
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("source", ["", " "])
def test_a_source_that_is_empty(source: str) -> None:
    with pytest.raises(DataError, match="SOURCE must not be empty"):
        parse_source(source, None, None, {})


def test_a_published_name_that_would_write_on_the_terminal() -> None:
    values = {"tokenizers": [], "datasets": [{"name": "\x1b[31mx", "\x1b[0m": 1}]}
    with pytest.raises(DataError, match=r"M: datasets\[0\]\.name: must be printable, got '\\x1b\[31mx'"):
        choose_dataset(values, "x", "M")
    with pytest.raises(DataError, match=r"it has '\\x1b\[0m'"):
        choose_dataset({"\x1b[0m": 1}, "x", "M")
