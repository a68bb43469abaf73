"""One script that trains, exports and scores: the core modules of a recipe joined, with its settings inside.

It ships as plain source, or as source that unpacks itself: LZMA, written as base85 text in one line of Python. Either
way the settings stand beside the code as one padded line, so that they can be read, and the length depends on none.

``python train_gpt.py`` runs what it carries and writes into the current folder; ``python train_gpt.py SETTINGS.json
[FOLDER]`` runs other settings, such as those with the paths of another machine. Both work under torchrun.
"""

import base64
import dataclasses
import hashlib
import lzma
import pathlib

from golfray.core.settings import RunSettings, settings_to_json
from golfray.ship.modules import PackError, Recipe, recipe_modules, recipe_of
from golfray.ship.names import SETTINGS_NAME, defined_names, find_problems, outside_imports
from golfray.ship.strip import strip_module

SETTINGS_BYTES = 4096
ENTRY_FUNCTIONS = ("main", "run_from_text", "leave_process")
MAIN_BLOCK = """
if __name__ == "__main__":
 leave_process(main(sys.argv[1:], {run}) if sys.argv[1:] else run_from_text({settings}, os.getcwd(), {run}))
"""
MAIN_BLOCK_IMPORTS = ("import os", "import sys")

# A raw stream: what a container would add (magic, checksum, index) the script does not need. The dictionary holds any
# script whole, and these literal and position bits made the baseline smallest of all that LZMA2 has.
LZMA_FILTERS = (
    {
        "id": lzma.FILTER_LZMA2,
        "dict_size": 2**20,
        "lc": 3,
        "lp": 0,
        "pb": 0,
        "mode": lzma.MODE_NORMAL,
        "nice_len": 273,
        "mf": lzma.MF_BT4,
        "depth": 1000,
    },
)
UNPACKING_IMPORTS = "import base64, lzma\n"
UNPACKING = (
    "exec(lzma.decompress(base64.b85decode('{text}'), lzma.FORMAT_RAW, None, [{{'id': {id}, 'dict_size': {size}}}]))\n"
)


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


def pack(settings: RunSettings, recipe: Recipe | None = None) -> PackedScript:
    """Pack a recipe (None: the one that the settings need) with these settings, in the form that ``ship.source`` says.

    The plain form is the same bytes wherever and whenever it is made; the compressed one wherever liblzma encodes
    alike, which only a release of it may change. A ``settings.bytes_code`` of 0 is filled in. Raises
    :class:`PackError` where it is another number than the script's length (the code has changed since), where the
    settings do not fit or ask for a search, and where the modules cannot become one script.
    """
    if settings.export.search is not None:
        raise PackError(
            "export.search is done after training, by golfray; what ships is one export: that of the settings.json of "
            "a trial which was searched, or the one that is set where export.search is null"
        )
    recipe = recipe or recipe_of(settings)
    names, imports, code = join_modules(recipe)
    before, after = around_settings(imports, code, settings.ship.source)
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


def around_settings(imports: str, code: str, source: str) -> tuple[str, str]:
    """The script's text before and after the settings, in the form ``source``: "plain" or "lzma"."""
    if source == "plain":
        return f"{imports}\n{SETTINGS_NAME} = r'", f"'\n{code}"
    if source == "lzma":
        return f"{UNPACKING_IMPORTS}{SETTINGS_NAME} = r'", f"'\n{self_extracting(imports + code)}"
    raise PackError(f"ship.source must be plain or lzma, got {source!r}")


def self_extracting(code: str) -> str:
    """One line of Python that runs ``code`` in its own namespace, from a compressed form of it."""
    packed = lzma.compress(code.encode(), lzma.FORMAT_RAW, filters=LZMA_FILTERS)
    # Base85 has neither quotes nor backslashes; of the filter, unpacking needs to know the dictionary alone.
    text = base64.b85encode(packed).decode()
    return UNPACKING.format(text=text, id=LZMA_FILTERS[0]["id"], size=LZMA_FILTERS[0]["dict_size"])


def bytes_code(settings: RunSettings, recipe: Recipe | None = None) -> int:
    """Length in bytes of the script that ships with these settings, one number a recipe and form.

    Raises as :func:`pack` does of modules.
    """
    plain = dataclasses.replace(RunSettings(), ship=settings.ship)
    return pack(plain, recipe or recipe_of(settings)).bytes_code


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
    """Names of the modules, their import statements, and all other code, which ends with the main block."""
    modules = recipe_modules(recipe)
    problems = find_problems(modules, recipe)
    defined = {name for module in modules for name in defined_names(module)}
    problems += [
        f"{modules[-1].path}: leads to no {name}, which the packed script calls"
        for name in (*ENTRY_FUNCTIONS, recipe.run)
        if name not in defined
    ]
    if problems:
        raise PackError("\n".join(problems))
    statements = {statement for module in modules for *_, statement in outside_imports(module, recipe.package)}
    imports = merge_imports(statements | set(MAIN_BLOCK_IMPORTS))
    code = "".join(strip_module(module) for module in modules)
    main_block = MAIN_BLOCK.format(run=recipe.run, settings=SETTINGS_NAME)
    return tuple(module.name for module in modules), imports, code + main_block


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
