"""Files below one root, wherever that is: what a source of published data must be able to do."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from golfray.data.errors import DataError
from golfray.data.fetch_errors import FetchError, TransientError

HEAD_BYTES = 1024
# A transfer that moved this far since the last failure has earned a fresh set of tries.
PROGRESS_BYTES = 1 << 20

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Stream:
    """A file being read. ``start`` is where: as asked, or 0 where the source cannot begin elsewhere.

    ``size`` is that of the whole file in bytes. ``identity`` changes when the content does; it is empty where the
    source gives nothing of the kind. ``sha256`` (64 hex digits) is what the source promises, or None.
    ``read(n)`` returns 1 to n bytes, and none at the end.
    """

    start: int
    size: int
    identity: str
    sha256: str | None
    read: Callable[[int], bytes]


@dataclasses.dataclass(frozen=True)
class Remote:
    """What a source says of a file before it is fetched; ``head`` is its first 1,024 bytes, or all where it is less."""

    size: int
    identity: str
    sha256: str | None
    head: bytes


class Source(Protocol):
    """Files below one root, named by paths with "/"."""

    @property
    def name(self) -> str:
        """What identifies the source in messages and records; it holds no secret."""
        ...

    @property
    def commit(self) -> str | None:
        """The commit that every file is read from, where the source has told of one."""
        ...

    def where(self, path: str) -> str:
        """The place of a file, for a person."""
        ...

    def open(self, path: str, offset: int = 0, count: int | None = None) -> contextlib.AbstractContextManager[Stream]:
        """Read a file from ``offset`` on; only the first ``count`` bytes are needed where that is given.

        Raises ``MissingError``, ``TransientError`` or ``FetchError``, here or while reading.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Patience:
    """How often a transient failure is met with another try, and how long is waited: doubling from ``first_wait_s``."""

    tries: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0

    def run(self, action: Callable[[], T], say: Callable[[str], None], position: Callable[[], int] = lambda: 0) -> T:
        """``action()``, again and again while it fails transiently; ``position()`` bytes moved show that it gets on.

        Raises ``FetchError`` when the tries are used up, and at once whatever else ``action`` raises.
        """
        failures, mark = 0, position()
        while True:
            try:
                return action()
            except TransientError as error:
                if position() >= mark + PROGRESS_BYTES:
                    failures, mark = 0, position()
                failures += 1
                if failures >= self.tries:
                    raise FetchError(
                        f"{error}; given up after {failures} tries. The same command continues where this stopped"
                    ) from error
                wait_s = error.retry_after_s
                if wait_s is None:
                    wait_s = self.first_wait_s * 2 ** (failures - 1)
                wait_s = min(wait_s, self.longest_wait_s)
                say(f"{error}; trying again in {wait_s:g} s")
                time.sleep(wait_s)


def probe(source: Source, path: str) -> Remote:
    """Size, identity and first bytes of a file; raises what ``Source.open`` raises."""
    with source.open(path, 0, HEAD_BYTES) as stream:
        head = _read_all_of(source.where(path), stream, min(HEAD_BYTES, stream.size))
        return Remote(stream.size, stream.identity, stream.sha256, head)


def read_whole(source: Source, path: str, limit: int) -> bytes:
    """A small file as bytes. Raises what ``Source.open`` raises, and ``DataError`` where it exceeds ``limit`` bytes."""
    with source.open(path) as stream:
        if stream.size > limit:
            raise DataError(f"{source.where(path)}: {stream.size:,} bytes, but at most {limit:,} are expected here")
        return _read_all_of(source.where(path), stream, stream.size)


def _read_all_of(where: str, stream: Stream, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = stream.read(count - len(content))
        if not part:
            raise TransientError(f"{where}: ended after {len(content):,} of {count:,} bytes")
        content += part
    return content


def relative_path(text: str, what: str) -> str:
    """A path below a root, its empty and "." parts dropped: "" is the root itself.

    Raises ``DataError`` naming ``what`` where the path would leave the root or means another thing on some system.
    """
    parts = text.split("/")
    if text.startswith("/") or ".." in parts or "\\" in text or ":" in text or not text.isprintable():
        raise DataError(
            f"{what}: {text!r} must be a path below the root of the source: no leading '/', no '..', no backslash, "
            "no colon, no control character"
        )
    return "/".join(part for part in parts if part not in ("", "."))


def joined(*parts: str) -> str:
    """Path parts joined by "/", the empty ones left out."""
    return "/".join(part for part in parts if part)
