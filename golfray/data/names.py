"""Names and paths that a person gives: whether files and records can be called so."""

from __future__ import annotations

import pathlib

from golfray.data.errors import DataError

# What a file system takes is 255; what golfray adds to a name takes some of it.
MAX_PART_BYTES, MAX_NAME_BYTES = 255, 200


def check_text(what: str, text: str) -> None:
    """Raise ``DataError`` naming ``what`` where an argument was not UTF-8: no record could hold it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{what}: must be UTF-8, got {text!r}; rename it") from error


def check_path(what: str, path: pathlib.Path) -> None:
    """Raise ``DataError`` where a path is not UTF-8, or a part of it is longer than any file's name can be."""
    check_text(what, str(path))
    for part in path.parts:
        _check_length(what, part, MAX_PART_BYTES)


def check_name(what: str, name: str) -> None:
    """Raise ``DataError`` where a name that files are named after is not UTF-8 or too long."""
    check_text(what, name)
    _check_length(what, name, MAX_NAME_BYTES)


def _check_length(what: str, name: str, most: int) -> None:
    if (size := len(name.encode())) > most:
        raise DataError(f"{what}: the name {name[:20]}... is too long: {size:,} bytes, must be at most {most}")
