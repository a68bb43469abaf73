"""The core modules that a recipe uses: read as source, never imported, in the order in which Python would run them."""

import ast
import dataclasses
import pathlib

from golfray.core.settings import RunSettings, beyond_baseline

# Syntax newer than this is refused, so that the packed script runs on every Python that the challenge's images have.
OLDEST_PYTHON = (3, 10)


class PackError(ValueError):
    """Code or settings that cannot become one script; the message says where and what to change."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The modules below ``folder`` (one flat package named ``package``) that the module ``entry`` leads to.

    One of them must define ``main(arguments, run)`` and ``run_from_text(settings_text, folder, run)``, as
    golfray.core.train does, and one ``run``, the function that runs a trial as golfray.core.trial.run_trial does.
    """

    folder: pathlib.Path
    package: str
    entry: str
    run: str

    def path_of(self, module: str) -> pathlib.Path:
        """Source file of a module of the package, whether or not it exists."""
        return self.folder / (module.removeprefix(self.package + ".") + ".py")


CORE = pathlib.Path(__file__).parents[1] / "core"
BASELINE = Recipe(CORE, "golfray.core", "golfray.core.train", "run_trial")
FRONTIER = Recipe(CORE, "golfray.core", "golfray.core.train_frontier", "run_frontier_trial")


def recipe_of(settings: RunSettings) -> Recipe:
    """The smallest recipe that does all that the settings ask for."""
    return FRONTIER if beyond_baseline(settings) else BASELINE


@dataclasses.dataclass(frozen=True)
class Module:
    """One module's source and syntax tree. ``uses`` holds (line, module, names) of its imports from the package."""

    name: str
    path: pathlib.Path
    source: str
    tree: ast.Module
    uses: tuple[tuple[int, str, tuple[str, ...]], ...]


def read_module(recipe: Recipe, name: str) -> Module:
    """Read one module of a recipe's package.

    Raises :class:`PackError` where the file is missing, is not Python of :data:`OLDEST_PYTHON`, or imports house code
    in another form than ``from PACKAGE.module import name`` at the top level: no alias, no star, none in a function.
    """
    path = recipe.path_of(name)
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PackError(f"{name}: no such module, {path} does not exist") from error
    try:
        tree = ast.parse(source, filename=str(path), feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise PackError(f"{path}:{error.lineno}: not valid Python {oldest}: {error.msg}") from error
    uses = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and is_house_import(node, recipe.package):
            problem = house_import_problem(node, recipe.package, at_top=node in tree.body)
            if problem:
                raise PackError(
                    f"{path}:{node.lineno}: {ast.unparse(node)}: {problem}; write "
                    f"`from {recipe.package}.module import name` at the top level"
                )
            assert isinstance(node, ast.ImportFrom)
            assert node.module is not None
            uses.append((node.lineno, node.module, tuple(alias.name for alias in node.names)))
    return Module(name, path, source, tree, tuple(sorted(uses)))


def is_house_import(node: ast.Import | ast.ImportFrom, package: str) -> bool:
    """Whether an import is of this house (relative, or from the package's own root) and not of the outside world."""
    root = package.split(".")[0]
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or (node.module or "").split(".")[0] == root
    return any(alias.name.split(".")[0] == root for alias in node.names)


def house_import_problem(node: ast.Import | ast.ImportFrom, package: str, at_top: bool) -> str | None:
    """Why an import of house code cannot simply be dropped when the modules become one, or None if it can."""
    if isinstance(node, ast.Import):
        return "a module imported as a whole is no name in the packed script"
    if node.level:
        return "relative imports are not packed"
    if node.module == package or not (node.module or "").startswith(package + "."):
        return f"only modules below {package} are packed"
    if not at_top:
        return "an import inside a function or a block is not packed"
    if any(alias.asname is not None for alias in node.names):
        return "an alias has no meaning once the modules are one"
    if any(alias.name == "*" for alias in node.names):
        return "a star hides which names are used"
    return None


def is_main_block(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":`` without an else."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def recipe_modules(recipe: Recipe) -> list[Module]:
    """The entry module and all it imports from the package, each after what it imports, in a fixed order.

    Raises :class:`PackError` on a cycle, besides what :func:`read_module` raises.
    """
    done: dict[str, Module] = {}

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise PackError(f"modules import each other in a circle: {' -> '.join((*chain, name))}")
        if name in done:
            return
        module = read_module(recipe, name)
        for _, used, _ in module.uses:
            visit(used, (*chain, name))
        done[name] = module

    visit(recipe.entry, ())
    return list(done.values())


def package_modules(recipe: Recipe) -> list[Module]:
    """Every module of the package, used by the recipe or not, by name."""
    paths = sorted(path for path in recipe.folder.glob("*.py") if path.stem != "__init__")
    return [read_module(recipe, f"{recipe.package}.{path.stem}") for path in paths]
