"""Writing so that what is there after a crash is either the old or the new, whole."""

from __future__ import annotations

import os
import pathlib


def flush_to_disk(path: pathlib.Path) -> None:
    """Return when a file, or a folder's list of names, is on disk; raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_in_place(unfinished: pathlib.Path, target: pathlib.Path) -> None:
    """Rename what is on disk already to ``target``, over a file that is there; raises ``OSError``."""
    os.replace(unfinished, target)
    flush_to_disk(target.parent)


def write_whole(path: pathlib.Path, content: bytes) -> None:
    """Write a file that is there either as it was or as it shall be, whatever happens; raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    flush_to_disk(unfinished)
    put_in_place(unfinished, path)
