"""What must hold so that modules can share one namespace: each top-level name means one thing in all of them."""

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator

from golfray.ship.modules import Module, Recipe, is_house_import, is_main_block

# What the packed script may need besides the standard library.
THIRD_PARTY = frozenset({"numpy", "sentencepiece", "torch"})
SETTINGS_NAME = "SETTINGS"
# Names that the packer's own lines need, and what they are.
PACKER_NAMES = {
    SETTINGS_NAME: "the settings",
    "base64": "base64",
    "lzma": "lzma",
    "os": "os",
    "sys": "sys",
}
# A module that reads these would see those of the script.
OWN_MODULE_NAMES = frozenset({"__annotations__", "__doc__", "__file__", "__name__", "__package__", "__spec__"})


class TopLevelNames(ast.NodeVisitor):
    """Collects the names that a module binds in its own namespace, with their lines; imports of the top level apart."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}

    def add(self, name: str, line: int) -> None:
        self.lines.setdefault(name, line)

    def visit_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.add(node.name, node.lineno)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global):
                for name in inner.names:
                    self.add(name, inner.lineno)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_definition

    def skip(self, node: ast.AST) -> None:
        """Another scope begins here."""

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = skip

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.add(node.id, node.lineno)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.add(node.name, node.lineno)
        self.generic_visit(node)

    def visit_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.add(alias.asname or alias.name.split(".")[0], node.lineno)

    visit_Import = visit_ImportFrom = visit_imports


def defined_names(module: Module) -> dict[str, int]:
    """Names that a module defines at its top level, without what its top-level imports bring, and their lines."""
    visitor = TopLevelNames()
    for statement in module.tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            visitor.visit(statement)
    return visitor.lines


def outside_imports(module: Module, package: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, name it binds, what that name then is, statement) of each top-level import from outside the house."""
    for node in module.tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and not is_house_import(node, package):
            for alias in node.names:
                asname = f" as {alias.asname}" if alias.asname else ""
                if isinstance(node, ast.ImportFrom):
                    meaning = f"{node.module}.{alias.name}"
                    yield (
                        node.lineno,
                        alias.asname or alias.name,
                        meaning,
                        f"from {node.module} import {alias.name}{asname}",
                    )
                else:
                    meaning = alias.name if alias.asname else alias.name.split(".")[0]
                    yield node.lineno, alias.asname or meaning, meaning, f"import {alias.name}{asname}"


def find_problems(modules: Iterable[Module], recipe: Recipe) -> list[str]:
    """Every reason why these modules cannot become one script, one line each; empty if they can.

    Two modules define one name; a name means an import in one and something else in another; a name hides a builtin
    that other modules mean; a module needs a package the script may not need, a name that is not defined where it is
    imported from, ``__file__`` and its like, or ``from __future__``.
    """
    modules = list(modules)
    problems: list[str] = []
    defined = {module.name: defined_names(module) for module in modules}
    meanings: dict[str, tuple[str, str]] = {name: (meaning, "the packer") for name, meaning in PACKER_NAMES.items()}

    def claim(name: str, meaning: str, where: str) -> None:
        known, first = meanings.setdefault(name, (meaning, where))
        if known != meaning:
            problems.append(f"{where}: the name {name} is taken by {first}; in one script it can mean one thing only")

    for module in modules:
        for line, name, meaning, statement in outside_imports(module, recipe.package):
            where = f"{module.path}:{line}"
            claim(name, meaning, where)
            root = meaning.split(".")[0]
            if root == "__future__" or statement.endswith("import *"):
                problems.append(f"{where}: {statement} would change the other modules; leave it out")
            elif root not in THIRD_PARTY and root not in sys.stdlib_module_names:
                problems.append(
                    f"{where}: {statement} needs {root}; the script must do with the standard library, "
                    f"{', '.join(sorted(THIRD_PARTY))}"
                )
        for name, line in defined[module.name].items():
            where = f"{module.path}:{line}"
            claim(name, f"defined in {module.name}", where)
            if hasattr(builtins, name):
                problems.append(f"{where}: the name {name} would hide the builtin in every module; rename it")
        for line, used, names in module.uses:
            missing = [name for name in names if used in defined and name not in defined[used]]
            if missing:
                problems.append(f"{module.path}:{line}: {used} defines no {', '.join(missing)}")
        kept = [statement for statement in module.tree.body if not is_main_block(statement)]
        for node in (node for statement in kept for node in ast.walk(statement)):
            if isinstance(node, ast.Name) and node.id in OWN_MODULE_NAMES:
                problems.append(
                    f"{module.path}:{node.lineno}: {node.id} would be the packed script's, not the module's"
                )
            elif isinstance(node, ast.Attribute) and node.attr == "__doc__":
                problems.append(f"{module.path}:{node.lineno}: __doc__ is empty in the packed script")
    return problems
