"""A codec that is not installed ends a run, or a study, before anything is trained."""

import pathlib
import sys

import pytest

from golfray.cli.dry_run import dry_run
from golfray.cli.exit_codes import ENVIRONMENT
from golfray.cli.main import app
from golfray.cli.output import Output
from golfray.cli.wiring import check_codecs
from golfray.config.resolve import resolve
from golfray.core.codec import CodecMissing
from golfray.sweep.space import load_space
from golfray.tracking.store import Store

SPACE = """
name: codecs
preset: parameter-golf
scale: laptop
budget: {trials: 1}
replicates: 1
fixed: {export.format: flat, export.scale_floor: 0.0, export.codec_level: 9}
knobs: {export.codec: {choices: [zlib, lzma, brotli]}}
"""


@pytest.fixture
def without_brotli(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Python itself takes for "not to be had".
    monkeypatch.setitem(sys.modules, "brotli", None)


def config_of(**overrides: object):
    return resolve("parameter-golf", "laptop", overrides, has_gpu=False).config


def test_the_codec_of_a_configuration(without_brotli: None) -> None:
    check_codecs(config_of())
    flat = {"export.format": "flat", "export.codec": "brotli"}
    with pytest.raises(CodecMissing, match=r"codec brotli needs the package brotli: .*pip install brotli$") as error:
        check_codecs(config_of(**flat))
    assert error.value.exit_code == ENVIRONMENT


def test_every_codec_that_a_space_may_try(without_brotli: None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    with pytest.raises(CodecMissing, match="codec brotli needs the package brotli"):
        check_codecs(load_space(tmp_path / "space.yaml", has_gpu=False))
    (tmp_path / "space.yaml").write_text(SPACE.replace(", brotli", ""))
    check_codecs(load_space(tmp_path / "space.yaml", has_gpu=False))


def test_every_codec_of_a_search(without_brotli: None, tmp_path: pathlib.Path) -> None:
    searched = {"export.format": "flat", "export.search": 200}
    with pytest.raises(CodecMissing, match="codec brotli needs the package brotli"):
        check_codecs(config_of(**searched))


@pytest.mark.parametrize("how", [["--search"], ["--set=export.format=flat", "--set=export.codec=brotli"]])
def test_an_export_ends_before_it_begins(without_brotli: None, trained_folder, tmp_path, how: list[str]) -> None:
    command = ["export", str(trained_folder), "--out", str(tmp_path / "out"), *how]
    with pytest.raises(CodecMissing, match="codec brotli needs the package brotli") as error:
        app(args=command, prog_name="golfray", standalone_mode=False)
    assert error.value.exit_code == ENVIRONMENT
    assert not (tmp_path / "out").exists()


def test_a_dry_run_is_refused_as_its_study_is(without_brotli: None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    space, folder = load_space(tmp_path / "space.yaml", has_gpu=False), tmp_path / "study"
    with pytest.raises(CodecMissing, match="codec brotli needs the package brotli"):
        dry_run(space, folder, Store.of(folder, None), None, Output(quiet=True))


def test_the_format_is_no_knob_since_it_decides_which_code_ships(tmp_path: pathlib.Path) -> None:
    from golfray.config.errors import ConfigError

    text = SPACE.replace("export.format: flat, ", "").replace("export.codec: ", "export.format: ")
    (tmp_path / "space.yaml").write_text(text.replace("[zlib, lzma, brotli]", "[reference, flat]"))
    with pytest.raises(ConfigError, match=r"export\.format: decides which code ships"):
        load_space(tmp_path / "space.yaml", has_gpu=False)
