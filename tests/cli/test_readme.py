"""What README.md tells a person to type exists: every verb, every option, every make target, every file."""

import functools
import pathlib
import re
import shlex

import pytest
from typer.testing import CliRunner

from golfray.cli.main import app

ROOT = pathlib.Path(__file__).parents[2]
# Their verbs are two words.
GROUPS = ("data", "show")


def typed_lines() -> list[str]:
    """Lines of README's fenced blocks that start with one of our commands; continued lines are joined."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if re.match(r"(\.venv/bin/)?golfray |make ", line)]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


@functools.cache
def help_of(*verbs: str) -> str:
    """What a verb says of itself."""
    ended = CliRunner().invoke(app, [*verbs, "--help"], prog_name="golfray")
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_readme_says_what_to_type():
    assert "make tune" in {line.partition("#")[0].strip() for line in typed_lines()}


@pytest.mark.parametrize("line", typed_lines())
def test_it_exists(line):
    command, *words = shlex.split(line, comments=True)
    if command == "make":
        targets = [word for word in words if "=" not in word and not word.startswith("-")]
        assert set(targets) <= make_targets()
        return
    verbs = [word for word in words if not word.startswith("-")]
    verbs = verbs[: 2 if verbs[:1] and verbs[0] in GROUPS else 1]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z][a-z-]*", help_of(*verbs)))
    spaces = [word for word in words if word.startswith("search_spaces/")]
    assert [space for space in spaces if not (ROOT / space).is_file()] == []
