"""Where GOLFRAY_HOME is, set or not, and what is said where it cannot be written."""

import os
import pathlib

import pytest

from golfray.data.errors import DataError
from golfray.data.home import golfray_home
from golfray.data.write_once import make_folder_once


def test_the_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "here"))
    assert golfray_home() == tmp_path / "here"


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="macOS keeps caches elsewhere")
def test_else_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("GOLFRAY_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert golfray_home() == tmp_path / "golfray"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert golfray_home() == tmp_path / "me" / ".cache" / "golfray"


def test_a_home_that_cannot_be_made_says_what_to_set(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"could not be built: .*Not a directory.*GOLFRAY_HOME can be set"):
        make_folder_once(tmp_path / "file" / "corpora" / "x", lambda folder: None)


def test_a_user_without_a_home_hears_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLFRAY_HOME", "~nobody-of-this-name/golfray")
    with pytest.raises(DataError, match="the user has no home folder; set GOLFRAY_HOME to a folder") as caught:
        golfray_home()
    assert caught.value.exit_code == 4
