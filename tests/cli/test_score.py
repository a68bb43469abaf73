"""`golfray score` on files that somebody else made: refused with exit 2 and one line, whatever is wrong with them."""

import json
import pathlib
import shutil

import pytest

ARTIFACT = "final_model.int8.ptz"


def no_zlib(folder: pathlib.Path) -> None:
    (folder / ARTIFACT).write_bytes(b"hello")


def other_shapes(folder: pathlib.Path) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    settings["model"]["model_dim"] *= 2
    (folder / "settings.json").write_text(json.dumps(settings))


def no_settings(folder: pathlib.Path) -> None:
    (folder / "settings.json").unlink()


SPOILED = {
    no_zlib: "artifact is not zlib data",
    other_shapes: "artifact does not fit the model: ",
    no_settings: "settings.json: no such file; give the artifact's settings with --settings",
}


@pytest.fixture(scope="module")
def refused(golfray, trained_folder):
    """How scoring each of them ended."""
    commands = {}
    for spoil in SPOILED:
        folder = golfray.folder / spoil.__name__
        folder.mkdir()
        for name in (ARTIFACT, "settings.json"):
            shutil.copy(trained_folder / name, folder)
        spoil(folder)
        commands[spoil] = ["score", folder / ARTIFACT]
    return golfray.run_all(commands)


@pytest.mark.parametrize("spoil", SPOILED)
def test_refused(refused, spoil):
    ended = refused[spoil]
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.one_line().startswith("golfray: ")
    assert f"/{spoil.__name__}/" in ended.one_line()
    assert SPOILED[spoil] in ended.one_line()
