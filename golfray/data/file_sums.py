"""The sha256 of large files, read once: a shard is gigabytes on a disk that may be slow, and asked for at every start.

A sum is remembered below :func:`golfray.data.home.golfray_home`, with the size, the place and the time of the last
change that the file had when it was read. A file that differs in any of them is read again; one that a failing disk
gives back otherwise is not, which `golfray data check` is for: it reads everything, always.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import time

from golfray.data.durable import write_whole
from golfray.data.errors import CannotWriteError
from golfray.data.home import golfray_home

_FOLDER = "sums"
# A file that changes twice within one tick of its file system's clock keeps its time: not remembered while that may be.
_YOUNG_SECONDS = 2.0


def sum_of(path: pathlib.Path) -> str:
    """sha256 of a file's content, hexadecimal. Raises ``OSError`` where it cannot be read."""
    with path.open("rb") as file:
        identity = _identity(os.fstat(file.fileno()))
        known = _recall(path, identity)
        if known is not None:
            return known
        begun = time.time_ns()
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        unchanged = _identity(os.fstat(file.fileno())) == identity
    if unchanged and identity[2] < begun - int(_YOUNG_SECONDS * 1e9):
        _remember(path, identity, digest)
    return digest


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _place_of(path: pathlib.Path) -> pathlib.Path:
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:32]
    return golfray_home() / _FOLDER / f"{name}.json"


def _recall(path: pathlib.Path, identity: list[int]) -> str | None:
    """The sum of a file that is as it was; None where it is not, or nothing is known of it."""
    try:
        known = json.loads(_place_of(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, CannotWriteError):
        return None  # no memory of it, or half of one
    same = isinstance(known, dict) and known.get("identity") == identity and known.get("path") == str(path.absolute())
    return str(known["sha256"]) if same and "sha256" in known else None


def _remember(path: pathlib.Path, identity: list[int], digest: str) -> None:
    # Without a place for it the file is read again the next time.
    with contextlib.suppress(OSError, CannotWriteError):
        place = _place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        record = {"path": str(path.absolute()), "identity": identity, "sha256": digest}
        write_whole(place, json.dumps(record).encode())
