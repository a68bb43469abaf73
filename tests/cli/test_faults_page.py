"""docs/faults.md names a test for every row, and each of them is there."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
# "tests/cli/test_tune_disk: may_only_be_read", or without the folder where the head of the table names it.
NAMED = re.compile(r"(?:tests/(\w+)/)?\b(test_\w+)(?:: (\w+(?:, (?!test)\w+)*))?")


def floors():
    """Each line of the page, with the folder that the table around it means."""
    floor = None
    for line in PAGE.splitlines():
        if (head := re.search(r"\| test in tests/(\w+) \|$", line)) is not None:
            floor = head[1]
        elif line.startswith(("| what ", "#")):
            floor = None
        yield floor, line


def named():
    """(folder, file, part of a test's name or ""), for every test that the page names."""
    found = []
    for floor, line in floors():
        for folder, file, parts in NAMED.findall(line):
            found += [(folder or floor or "cluster", file, part) for part in (parts.split(", ") if parts else [""])]
    return list(dict.fromkeys(found))


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]


@pytest.mark.parametrize(("folder", "file", "part"), named())
def test_every_named_test_is_there(folder, file, part):
    assert [name for name in names_in(ROOT / "tests" / folder / f"{file}.py") if part in name]


def test_every_row_of_a_table_with_a_column_of_tests_names_one():
    column, rows = False, []
    for line in PAGE.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[-1] == "test" or cells[-1].startswith("test in "):
                column = True
                continue
            if column and not set(line) <= set("|-"):
                rows.append((line, NAMED.search(cells[-1])))
        else:
            column = False
    assert len(rows) > 30
    assert [line for line, found in rows if found is None] == []
