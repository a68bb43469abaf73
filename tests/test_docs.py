"""What the documentation points to is there: files, headings, other files by name, tests by name."""

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "golfray").rglob("*.py"))


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def without_code_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings: lower case, no punctuation, dashes for spaces, numbered."""
    seen: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", without_code_blocks(page.read_text(encoding="utf-8")), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if anchor in seen else anchor)
        seen[anchor] = seen.get(anchor, 0) + 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^()\s]+)\)", without_code_blocks(page.read_text(encoding="utf-8")))
    lost = []
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue  # another site
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_there_are_links_to_look_at() -> None:
    assert {"muon.yaml", "space_file.md"} <= {
        link.rpartition("/")[2] for link in re.findall(r"\]\(([^()\s]+)\)", PAGES[0].read_text(encoding="utf-8"))
    }
    assert "two-commands" in anchors(PAGES[0])


def files_named_in(text: str) -> list[str]:
    """Names of files and folders of this repository in a text, as far as they are below one of these folders."""
    return re.findall(r"(?<![\w./-])(?:docs|benchmarks|tests|search_spaces)/[\w./-]*[\w-]", text)


def documentation_of(module: pathlib.Path) -> str:
    """Docstrings and comments of a module."""
    source = module.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    return "\n".join([*docstrings, *re.findall(r"# .*", source)])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_exist(page: pathlib.Path) -> None:
    named = files_named_in(page.read_text(encoding="utf-8"))
    # A test is named with or without its suffix.
    assert [name for name in named if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()] == []


def test_files_that_the_code_names_exist() -> None:
    lost = {name_of(module): files_named_in(documentation_of(module)) for module in MODULES}
    assert {module: names for module, names in lost.items() if not all((ROOT / name).exists() for name in names)} == {}


def test_tests_that_a_page_names_exist() -> None:
    """``test_faults: a_killed_rank, a_killed_lane`` is a file of tests and a part of the names of tests in it."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    named = [
        (f"{page.name}: {words}", stem, part)
        for page in PAGES
        for words, stem, parts in re.findall(
            r"\b((test_\w+)(?:: (\w+_\w+(?:, (?!test_)\w+_\w+)*))?)", page.read_text(encoding="utf-8")
        )
        for part in (parts.split(", ") if parts else [""])
    ]
    assert len(named) > 20, "docs/faults.md names a test in every row"
    assert [words for words, stem, part in named if not re.search(rf"def test_\w*{part}", files.get(stem, ""))] == []
