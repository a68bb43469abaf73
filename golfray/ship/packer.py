"""One script that trains, exports and scores: the core modules of a recipe joined, with its settings inside.

``python train_gpt.py`` runs what it carries and writes into the current folder; ``python train_gpt.py SETTINGS.json
[FOLDER]`` runs other settings, such as those with the paths of another machine. Both work under torchrun.
"""

import dataclasses
import hashlib
import pathlib

from golfray.core.settings import RunSettings, settings_to_json
from golfray.ship.modules import BASELINE, PackError, Recipe, recipe_modules
from golfray.ship.names import SETTINGS_NAME, defined_names, find_problems, outside_imports
from golfray.ship.strip import strip_module

SETTINGS_BYTES = 4096
ENTRY_FUNCTIONS = ("main", "run_from_text", "leave_process")
MAIN_BLOCK = f"""
if __name__ == "__main__":
 leave_process(main(sys.argv[1:]) if sys.argv[1:] else run_from_text({SETTINGS_NAME}, os.getcwd()))
"""
MAIN_BLOCK_IMPORTS = ("import os", "import sys")


@dataclasses.dataclass(frozen=True)
class PackedScript:
    """The script's UTF-8 bytes, the settings inside (their ``bytes_code`` is its length), and the modules it joins."""

    content: bytes
    settings: RunSettings
    modules: tuple[str, ...]

    @property
    def bytes_code(self) -> int:
        """Length in bytes; the same for all settings of a recipe."""
        return len(self.content)

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


def pack(settings: RunSettings, recipe: Recipe = BASELINE) -> PackedScript:
    """Pack a recipe with these settings; the same bytes wherever and whenever it is done.

    A ``settings.bytes_code`` of 0 is filled in. Raises :class:`PackError` where it is another number than the script's
    length (the code has changed since), where the settings do not fit, and where the modules cannot become one script.
    """
    names, before, after = join_modules(recipe)
    length = len(before.encode()) + SETTINGS_BYTES + len(after.encode())
    if settings.bytes_code not in (0, length):
        raise PackError(
            f"settings say bytes_code {settings.bytes_code}, but {recipe.entry} now packs to {length} bytes: the code "
            "has changed since these settings were made; set bytes_code to 0 to count it anew"
        )
    settings = dataclasses.replace(settings, bytes_code=length)
    content = (before + settings_line(settings) + after).encode()
    assert len(content) == length
    return PackedScript(content, settings, names)


def bytes_code(recipe: Recipe = BASELINE) -> int:
    """Length in bytes of a recipe's packed script, whatever its settings. Raises as :func:`pack` does of modules."""
    return pack(RunSettings(), recipe).bytes_code


def write_packed(path: pathlib.Path, script: PackedScript) -> None:
    """Write the script so that the name never stands for half of it. Raises :class:`PackError` on a folder's name."""
    if path.is_dir():
        raise PackError(f"{path}: is a folder; name the file to write")
    # Imported here since it loads torch, which counting the code's bytes does not need.
    from golfray.core.artifact import write_atomically

    write_atomically(path, script.content)


def settings_line(settings: RunSettings) -> str:
    """Settings as one line of JSON that a raw string in single quotes can hold, padded to :data:`SETTINGS_BYTES`."""
    line = settings_to_json(settings).replace("'", r"\u0027")
    if not line.isascii() or len(line) > SETTINGS_BYTES:
        raise PackError(
            f"settings are {len(line.encode())} bytes of JSON, at most {SETTINGS_BYTES} fit into the packed script; "
            "shorten the paths data.folder and data.tokenizer"
        )
    return line.ljust(SETTINGS_BYTES)


def join_modules(recipe: Recipe) -> tuple[tuple[str, ...], str, str]:
    """Names of the modules, and the script's text before and after the settings."""
    modules = recipe_modules(recipe)
    problems = find_problems(modules, recipe)
    entry = modules[-1]
    problems += [
        f"{entry.path}: defines no {name}, which the packed script calls"
        for name in ENTRY_FUNCTIONS
        if name not in defined_names(entry)
    ]
    if problems:
        raise PackError("\n".join(problems))
    statements = {statement for module in modules for *_, statement in outside_imports(module, recipe.package)}
    imports = merge_imports(statements | set(MAIN_BLOCK_IMPORTS))
    code = "".join(strip_module(module) for module in modules)
    return tuple(module.name for module in modules), f"{imports}\n{SETTINGS_NAME} = r'", "'\n" + code + MAIN_BLOCK


def merge_imports(statements: set[str]) -> str:
    """Import statements of one name each, sorted, those from one module in one line."""
    whole = sorted(statement for statement in statements if statement.startswith("import "))
    parts: dict[str, list[str]] = {}
    for statement in sorted(statements.difference(whole)):
        source, name = statement.split(" import ")
        parts.setdefault(source, []).append(name)
    return "".join(
        f"{line}\n" for line in [*whole, *(f"{source} import {', '.join(parts[source])}" for source in parts)]
    )
