"""A folder on this machine as a source of published data."""

from __future__ import annotations

import contextlib
import io
import pathlib
from collections.abc import Iterator

from golfray.data.errors import DataError
from golfray.data.fetch_errors import FetchError, MissingError
from golfray.data.sources import Stream


class LocalSource:
    """Files below ``folder``; symbolic links are followed, as a download cache consists of them."""

    commit: str | None = None

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.absolute()
        self.name = str(self.folder)

    def where(self, path: str) -> str:
        """The full path of a file."""
        return str(self.folder / path)

    @contextlib.contextmanager
    def open(self, path: str, offset: int = 0, count: int | None = None) -> Iterator[Stream]:
        """See ``Source``; a file's identity is the time of its last change."""
        full = self.folder / path
        try:
            state = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            link = f": a symbolic link to {full.readlink()}, which is not there" if full.is_symlink() else ""
            raise MissingError(f"{full}{link or ': no such file'}") from None
        except OSError as error:
            raise FetchError(f"{full}: {error.strerror}") from error
        if not full.is_file():
            raise DataError(f"{full}: must be a file")
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(open(full, "rb"))
                file.seek(offset)
            except OSError as error:
                raise FetchError(f"{full}: {error.strerror}") from error
            yield Stream(offset, state.st_size, f"changed {state.st_mtime_ns}", None, lambda size: _read(file, size))


def _read(file: io.BufferedReader, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise FetchError(f"{file.name}: {error.strerror}") from error
