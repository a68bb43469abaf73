"""The temporary folder of a Ray session: made, its logs kept, thrown away, and those of dead drivers swept.

In it, ``owner.json`` says which process made it for which study. The driver keeps that file locked as long as it lives,
so a folder whose lock is free is nobody's, even where process ids are those of another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from golfray.cluster.session_processes import end_processes

_PREFIX = "golfray-"
_OWNER = "owner.json"

# A socket path holds 107 bytes, of which Ray appends up to about 65 (session name, sockets/plasma_store).
_LONGEST = 40
_ALWAYS_SHORT = "/tmp"

_SWEEP_SECONDS = 5.0


class TempFolder:
    """A folder that only its owner may enter, locked for this process. ``logs`` is where the study keeps Ray's logs.

    Raises ``OSError`` where it cannot be made.
    """

    def __init__(self, logs: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_short_parent()))
        try:
            unseen = self.path / f"{_OWNER}.new"
            self._owner: IO[str] = unseen.open("w", encoding="utf-8")
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            json.dump({"pid": os.getpid(), "logs": str(logs)}, self._owner)
            self._owner.flush()
            unseen.rename(self.path / _OWNER)  # a sweep never sees it without its lock
            _link_logs(logs, self.path)
        except BaseException:
            shutil.rmtree(self.path)
            raise

    @property
    def ray_folder(self) -> Path:
        """Ray opens its folder to everybody, so it gets one below ours."""
        return _ray_folder(self.path)

    def discard(self) -> None:
        """Keep the logs and remove the rest. Raises ``OSError`` where they cannot be kept; the folder goes anyway."""
        self._owner.close()
        discard_temp_folder(self.path)


def discard_temp_folder(path: Path) -> None:
    """Move Ray's logs to where the owner file says and remove the folder.

    Raises ``OSError`` where the logs cannot be kept, such as on a full disk; the folder goes anyway.
    """
    try:
        owner = json.loads((path / _OWNER).read_text(encoding="utf-8"))
        _keep_logs(Path(owner["logs"]), path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep_dead_folders() -> list[Path]:
    """Remove what drivers left that died together with their watchdogs; returns the folders.

    Processes of such a session that still live are ended first. A folder without an owner file is left alone.
    """
    return [
        folder
        for parent in sorted({tempfile.gettempdir(), _ALWAYS_SHORT})
        for folder in Path(parent).glob(f"{_PREFIX}*")
        if _swept(folder)
    ]


def _swept(folder: Path) -> bool:
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _OWNER).open("r+", encoding="utf-8") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_processes(folder, {os.getpid()}, _SWEEP_SECONDS)
            # A disk that has no room for old logs is not this study's trouble.
            with contextlib.suppress(OSError, ValueError, KeyError):
                discard_temp_folder(folder)
    except OSError:  # in use, another version's, or gone by now
        return False
    return True


def _short_parent() -> str:
    """The system's temporary folder if Ray's socket paths fit below it, else /tmp."""
    usual = tempfile.gettempdir()
    return usual if len(f"{usual}/{_PREFIX}12345678/r") <= _LONGEST else _ALWAYS_SHORT


def _ray_folder(path: Path) -> Path:
    return path / "r"


def _link_logs(link: Path, path: Path) -> None:
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(_ray_folder(path) / "session_latest" / "logs")


def _keep_logs(kept: Path, path: Path) -> None:
    """Replace the link by the logs, unless it has become another session's."""
    if not kept.is_symlink() or not Path(os.readlink(kept)).is_relative_to(path):
        return
    source = kept.resolve()
    kept.unlink()
    if source.is_dir():
        shutil.copytree(source, kept, symlinks=True, ignore_dangling_symlinks=True)
