"""Wrong space files and settings through the real command: one line that says where, what and what would be right."""

import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from golfray.cli.main import main

SNAPSHOT = YAML(typ="safe").load(pathlib.Path(__file__).with_name("wrong_inputs.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def signals() -> Iterator[None]:
    """The command takes SIGTERM over; these tests run it in their own process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def written(case: dict[str, Any], folder: pathlib.Path) -> list[str]:
    """Write the files of a case; returns the arguments that use them."""
    for name, text in case.get("files", {}).items():
        (folder / name).write_text(text)
    arguments = [f"--set={text}" for text in case.get("sets", [])]
    text = case.get("whole") or (SNAPSHOT["head"] + case["space"] if "space" in case else None)
    if text is None:
        return ["--scale=laptop", *arguments]
    (folder / "space.yaml").write_text(text)
    return ["space.yaml", *arguments]


def refusal(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code, *capfd.readouterr()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in SNAPSHOT["cases"]])
def test_one_line_and_exit_code_2(
    case: dict[str, Any],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    signals: None,
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    monkeypatch.chdir(folder)
    arguments = written(case, folder)
    before = sorted(path.name for path in folder.iterdir())
    assert refusal(["show", "config", *arguments], capfd) == (2, "", f"golfray: {case['message']}\n")
    assert sorted(path.name for path in folder.iterdir()) == before


def test_there_are_enough_of_them_and_no_two_the_same() -> None:
    messages = [case["message"] for case in SNAPSHOT["cases"]]
    assert len(messages) == len(set(messages)) >= 20


WATCHED = """\
import sys
from golfray.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*[name for name in ("torch", "ray", "optuna", "mlflow") if name in sys.modules])
"""


@pytest.mark.parametrize("name", ["a misspelt preset", "a range that another machine would not find"])
def test_tune_answers_before_anything_heavy_is_imported(name: str, tmp_path: pathlib.Path) -> None:
    (case,) = [case for case in SNAPSHOT["cases"] if case["case"] == name]
    assert "scale:" not in case["whole"], "where the scale is auto, a GPU must not be looked for"
    arguments = [sys.executable, "-c", WATCHED, "tune", *written(case, tmp_path)]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "\n", f"golfray: {case['message']}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["space.yaml"]
