"""Reading a file that a person named, of a kind that is never large: no pipe is waited for, no device read for ever."""

from __future__ import annotations

from pathlib import Path

from golfray.config.errors import ConfigError

LARGEST_BYTES = 20_000_000


def read_small_file(path: Path) -> bytes:
    """All of the file. Raises :class:`ConfigError` where it is none, cannot be read, or has over ``LARGEST_BYTES``."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError("is no regular file", file=str(path))
        with open(path, "rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    if len(content) > LARGEST_BYTES:
        raise ConfigError(f"is larger than {LARGEST_BYTES:,} bytes, as no such file is", file=str(path))
    return content
