"""The packed script as text: its length, its settings, and that nothing is in it but code."""

import ast
import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.core.settings import (
    AveragingSettings,
    DataSettings,
    EvaluationSettings,
    RunSettings,
    RuntimeSettings,
    ShipSettings,
    settings_from_dict,
)
from golfray.ship.modules import BASELINE, FRONTIER, PackError, Recipe, package_modules, recipe_of
from golfray.ship.names import find_problems
from golfray.ship.packer import SETTINGS_BYTES, bytes_code, pack, settings_line, write_packed

BASELINE_LIMIT = 48_000


@pytest.fixture(scope="module")
def script_text() -> str:
    return pack(RunSettings()).content.decode()


def embedded_line(content: bytes) -> str:
    """The value of SETTINGS in a packed script, as Python reads it."""
    for node in ast.parse(content.decode()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SETTINGS":
            return ast.literal_eval(node.value)
    raise AssertionError("the script has no SETTINGS")


def test_baseline_is_under_the_limit() -> None:
    assert bytes_code(RunSettings()) <= BASELINE_LIMIT
    assert bytes_code(RunSettings(ship=LZMA)) <= BASELINE_LIMIT / 2


def test_whole_core_can_share_one_namespace() -> None:
    assert find_problems(package_modules(BASELINE), BASELINE) == []


def test_modules_come_after_what_they_import() -> None:
    modules = pack(RunSettings()).modules
    assert modules[-1] == "golfray.core.train"
    assert len(set(modules)) == len(modules)
    for module in package_modules(BASELINE):
        for _, used, _ in module.uses:
            if module.name in modules:
                assert modules.index(used) < modules.index(module.name)


def test_script_is_python_without_comments_docstrings_and_house_imports(script_text: str) -> None:
    compile(script_text, "train_gpt.py", "exec")
    tree = ast.parse(script_text, feature_version=(3, 10))
    kinds = {token.type for token in tokenize.generate_tokens(io.StringIO(script_text).readline)}
    assert tokenize.COMMENT not in kinds
    bare_strings = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert bare_strings == []
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all("golfray" not in ast.unparse(node) for node in imports)
    at_top = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(set(at_top)) == len(at_top)
    assert script_text.count("__name__ ==") == 1


def test_settings_line_has_its_fixed_length_and_the_scripts_own() -> None:
    script = pack(dataclasses.replace(RunSettings(), cap_bytes=123_456))
    line = embedded_line(script.content)
    assert len(line.encode()) == SETTINGS_BYTES
    assert line.startswith("{")
    assert line.rstrip(" ").endswith("}")
    assert settings_from_dict(json.loads(line)) == script.settings
    assert script.settings.cap_bytes == 123_456
    assert script.settings.bytes_code == script.bytes_code == len(script.content) == bytes_code(RunSettings())


@given(folder=st.text(st.characters(exclude_categories=["Cs"]), max_size=150), seed=st.integers(0, 2**62))
def test_any_settings_are_one_padded_line_that_comes_back(folder: str, seed: int) -> None:
    given_settings = RunSettings(
        data=DataSettings(folder=folder, tokenizer="it's \\ ''' \" \n"), runtime=RuntimeSettings(seed=seed)
    )
    line = settings_line(given_settings)
    assert len(line.encode()) == SETTINGS_BYTES
    assert settings_from_dict(json.loads(ast.literal_eval(f"r'{line}'"))) == given_settings


def test_length_is_the_same_for_all_settings() -> None:
    odd = RunSettings(data=DataSettings(folder="/data/it's \\ é"), runtime=RuntimeSettings(seed=2**62), cap_bytes=1)
    script = pack(odd)
    assert len(script.content) == len(pack(RunSettings()).content)
    assert settings_from_dict(json.loads(embedded_line(script.content))) == script.settings
    assert script.settings.data == odd.data


EMA = AveragingSettings(method="ema")
LZMA = ShipSettings(source="lzma")


@pytest.mark.parametrize(
    ("given_settings", "recipe"),
    [
        (RunSettings(), BASELINE),
        (RunSettings(averaging=EMA), FRONTIER),
        (RunSettings(evaluation=EvaluationSettings(sliding_stride=64)), FRONTIER),
        (RunSettings(ship=LZMA), BASELINE),
    ],
)
def test_settings_ship_with_the_modules_that_they_need(given_settings: RunSettings, recipe: Recipe) -> None:
    assert recipe_of(given_settings) == recipe
    modules = pack(given_settings).modules
    assert modules[-1] == recipe.entry
    assert ("golfray.core.averaging" in modules) == ("golfray.core.sliding" in modules) == (recipe == FRONTIER)


@pytest.mark.parametrize("form", ["plain", "lzma"])
@pytest.mark.parametrize("recipe", [BASELINE, FRONTIER], ids=["baseline", "frontier"])
def test_the_length_is_one_number_a_recipe_and_form(recipe: Recipe, form: str) -> None:
    ship = ShipSettings(source=form)
    averaging = AveragingSettings(method="none" if recipe == BASELINE else "swa")
    long = RunSettings(
        data=DataSettings(folder="/data/it's \\ é"), runtime=RuntimeSettings(seed=2**62), ship=ship, averaging=averaging
    )
    script = pack(long)
    assert script.bytes_code == len(script.content) == script.settings.bytes_code
    # Of the same recipe with other settings.
    assert script.bytes_code == bytes_code(RunSettings(ship=ship), recipe)
    assert settings_from_dict(json.loads(embedded_line(script.content))) == script.settings


def test_compressed_source_is_the_plain_one_in_less_than_half_the_bytes() -> None:
    plain, packed = pack(RunSettings()), pack(RunSettings(ship=LZMA))
    text = packed.content.decode()
    assert packed.bytes_code - SETTINGS_BYTES < 0.4 * (plain.bytes_code - SETTINGS_BYTES)
    assert packed.modules == plain.modules
    seen: list[str] = []
    # What the line runs is, with the settings between, the plain script.
    exec(text.replace("\nexec(", "\nseen.append("), {"seen": seen, "__name__": "no main"})
    imports, code = plain.content.decode().split(f"SETTINGS = r'{settings_line(plain.settings)}'\n")
    assert seen[0].decode() == imports.rstrip("\n") + "\n" + code
    assert pack(RunSettings(ship=LZMA)).content == packed.content


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(PackError, match=r"ship\.source must be plain or lzma, got 'zip'"):
        pack(RunSettings(ship=ShipSettings(source="zip")))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PackError, match=r"at most 4096 fit.*data\.folder"):
        pack(RunSettings(data=DataSettings(folder="f" * 4096)))


def test_settings_counted_with_other_code_are_refused() -> None:
    assert pack(RunSettings(bytes_code=bytes_code(RunSettings()))).bytes_code == bytes_code(RunSettings())
    with pytest.raises(PackError, match=f"bytes_code 12345, .* {bytes_code(RunSettings())} bytes"):
        pack(RunSettings(bytes_code=12345))


def test_same_bytes_whatever_the_hash_seed(tmp_path: pathlib.Path) -> None:
    program = "from golfray.ship.packer import *; print(pack(RunSettings(cap_bytes=7)).sha256)"
    hashes = {pack(RunSettings(cap_bytes=7)).sha256}
    for seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        hashes.add(run.stdout.strip())
    assert len(hashes) == 1


def test_counting_bytes_loads_no_torch() -> None:
    program = "import sys; from golfray.ship.packer import *; bytes_code(RunSettings()); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_written_file_is_the_script_and_nothing_else_stays(tmp_path: pathlib.Path) -> None:
    script = pack(RunSettings())
    path = tmp_path / "train_gpt.py"
    path.write_text("an older script")
    write_packed(path, script)
    assert path.read_bytes() == script.content
    assert [file.name for file in tmp_path.iterdir()] == ["train_gpt.py"]


def test_a_folder_is_no_file_to_write(tmp_path: pathlib.Path) -> None:
    with pytest.raises(PackError, match="is a folder; name the file to write"):
        write_packed(tmp_path, pack(RunSettings()))
    assert not tmp_path.with_name(f"{tmp_path.name}.part").exists()
