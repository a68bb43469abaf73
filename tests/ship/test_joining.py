"""Small packages made here: what joining keeps, what it cuts, and what it refuses."""

import pathlib
import subprocess
import sys

import pytest

from golfray.core.settings import RunSettings
from golfray.ship.modules import PackError, Recipe, package_modules
from golfray.ship.names import find_problems
from golfray.ship.packer import bytes_code, pack
from golfray.ship.strip import strip_module

TRAIN = '''
"""Entry."""
from house.core.parts import double


def run() -> None:
    """What a real entry runs a trial with."""


def run_from_text(settings_text: str, folder: str, run) -> int:
    print(double(len(settings_text)))
    return 0


def leave_process(code: int) -> None:
    raise SystemExit(code)


def main(arguments: list[str], run) -> int:
    return 3


if __name__ == "__main__":
    raise SystemExit("the module's own")
'''
PARTS = "def double(x: int) -> int:\n    return 2 * x\n"


def make_recipe(folder: pathlib.Path, **sources: str) -> Recipe:
    for name, source in {"train": TRAIN, "parts": PARTS, **sources}.items():
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    return Recipe(folder, "house.core", "house.core.train", "run")


def stripped(folder: pathlib.Path, source: str) -> str:
    recipe = make_recipe(folder, parts=source)
    (module,) = (module for module in package_modules(recipe) if module.name == "house.core.parts")
    return strip_module(module)


def test_only_modules_in_use_are_joined_and_the_script_runs(tmp_path: pathlib.Path) -> None:
    recipe = make_recipe(tmp_path, unused="raise SystemExit('must not be packed')\n")
    script = pack(RunSettings(), recipe)
    assert script.modules == ("house.core.parts", "house.core.train")
    assert b"must not be packed" not in script.content
    assert b"the module's own" not in script.content
    assert script.bytes_code == bytes_code(RunSettings(), recipe)
    path = tmp_path / "joined.py"
    path.write_bytes(script.content)
    alone = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True)
    assert (alone.returncode, alone.stdout) == (0, "8192\n"), alone.stderr
    given = subprocess.run([sys.executable, "-I", path, "settings.json"], capture_output=True, text=True)
    assert given.returncode == 3


def test_strings_that_look_like_comments_and_layout_stay(tmp_path: pathlib.Path) -> None:
    source = (
        '"""Module — docstring."""\n'
        "# a comment\n"
        'TEXT = """\n'
        "    # no comment\n"
        "\n"
        '        eight"""  # a comment\n'
        "\n"
        'NAME = f"""{TEXT}\n'
        "    # {len(TEXT)} {{}}\n"
        '"""\n'
        'HASH = "é # é"  # a comment\n'
    )
    code = stripped(tmp_path, source)
    expected: dict = {}
    exec(source, expected)
    found: dict = {}
    exec(code, found)
    assert {name: found[name] for name in ("TEXT", "NAME", "HASH")} == {
        name: expected[name] for name in ("TEXT", "NAME", "HASH")
    }
    assert "a comment" not in code
    assert "docstring" not in code


def test_annotations_go_only_where_nobody_reads_them(tmp_path: pathlib.Path) -> None:
    source = '''
import dataclasses
import functools


@dataclasses.dataclass
class Point:
    """A point."""

    x: int = 1
    """How far."""

    def moved(
        self,
        by: "int | None" = None,  # how far
        *rest: int,
        é: dict[str, int],
        **others: float,
    ) -> "Point":
        """Move."""
        total: int = 0
        self.last: float | None = None
        unset: int
        return self


class Empty(Exception):
    """Nothing in it."""


@functools.cache
def cached(x: int) -> int:
    return x
'''
    assert stripped(tmp_path, source) == (
        "\n@dataclasses.dataclass\n"
        "class Point:\n"
        " x: int = 1\n"
        " def moved(\n"
        "  self,\n"
        "  by=None,\n"
        "  *rest,\n"
        "  é,\n"
        "  **others,\n"
        " ):\n"
        "  total = 0\n"
        "  self.last = None\n"
        "  unset: int\n"
        "  return self\n"
        "\n"
        "class Empty(Exception):\n"
        " pass\n"
        "\n"
        "@functools.cache\n"
        "def cached(x: int) -> int:\n"
        " return x\n"
    )


def test_source_that_cannot_be_cut_is_refused_not_changed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(PackError, match="line for itself"):
        stripped(tmp_path, 'def double(x): "Twice."; return 2 * x\n')
    with pytest.raises(PackError, match="ruff format"):
        stripped(tmp_path, "def double(x):\n  if x:\n    return 2 * x\n")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ("def double(x): ...\ndef main(): ...\n", "the name main is taken by"),
        (
            "def double(x): ...\ntry:\n    import json as main\nexcept ImportError:\n    pass\n",
            "the name main is taken by",
        ),
        ("def double(x): ...\nfor main in (1, 2):\n    pass\n", "the name main is taken by"),
        ("def double(x):\n    global main\n    main = 1\n", "the name main is taken by"),
        ("def double(x): ...\nimport json as main\n", "the name main is taken by"),
        ("def double(x): ...\nSETTINGS = 1\n", "the name SETTINGS is taken by the packer"),
        ("def double(x): ...\nsys = 1\n", "the name sys is taken by the packer"),
        ("def double(x): ...\ndef sum(x): ...\n", "hide the builtin"),
        ("import yaml\ndef double(x): ...\n", "needs yaml"),
        ("from __future__ import annotations\ndef double(x): ...\n", "__future__"),
        ("from math import *\ndef double(x): ...\n", "would change the other modules"),
        ("def double(x):\n    return __file__\n", "__file__"),
        ("NAME = __name__\ndef double(x): ...\n", "__name__"),
        ("def twice(x): ...\n", "house.core.parts defines no double"),
    ],
)
def test_names_that_cannot_share_a_script_are_refused(tmp_path: pathlib.Path, parts: str, problem: str) -> None:
    recipe = make_recipe(tmp_path, parts=parts)
    (found,) = find_problems(package_modules(recipe), recipe)
    assert problem in found
    assert ".py:" in found
    with pytest.raises(PackError, match=problem.replace(".", r"\.")):
        pack(RunSettings(), recipe)


def test_same_import_in_two_modules_and_local_names_are_no_clash(tmp_path: pathlib.Path) -> None:
    parts = "import torch\nimport torch.nn as nn\ndef double(x):\n    main = [sys for sys in x]\n    return main\n"
    more = "import torch.distributed\nimport torch.nn as nn\nfrom house.core.parts import double\n"
    recipe = make_recipe(tmp_path, parts=parts, more=more, train="from house.core.more import nn\n" + TRAIN)
    assert find_problems(package_modules(recipe), recipe) == [
        f"{tmp_path / 'train.py'}:1: house.core.more defines no nn"
    ]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("from house.core.parts import double as twice", "an alias has no meaning"),
        ("from house.core.parts import *", "a star hides"),
        ("from house.core import parts", "only modules below house.core"),
        ("from house.config import parts", "only modules below house.core"),
        ("import house.core.parts", "imported as a whole"),
        ("from .parts import double", "relative imports"),
        ("def later():\n    from house.core.parts import double", "inside a function"),
        ("from house.core.absent import double", "no such module"),
        ("type Number = int", "not valid Python 3.10"),
    ],
)
def test_imports_that_cannot_be_dropped_are_refused(tmp_path: pathlib.Path, statement: str, why: str) -> None:
    recipe = make_recipe(tmp_path, train=f"{statement}\n{TRAIN}")
    with pytest.raises(PackError, match=why.replace(".", r"\.")):
        pack(RunSettings(), recipe)


def test_circles_and_missing_entry_functions_are_refused(tmp_path: pathlib.Path) -> None:
    circle = make_recipe(tmp_path, parts="from house.core.train import main\ndef double(x): ...\n")
    with pytest.raises(PackError, match=r"circle: house\.core\.train -> house\.core\.parts -> house\.core\.train"):
        pack(RunSettings(), circle)
    with pytest.raises(PackError, match="leads to no run_from_text"):
        pack(RunSettings(), make_recipe(tmp_path, train="def main(arguments): ...\n"))
