"""One file from a source to its place: written as ``.part``, continued where it stopped, renamed when verified."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, Protocol, TypeVar

from golfray.data.durable import put_in_place
from golfray.data.errors import CannotWriteError, DataError
from golfray.data.fetch_errors import FetchError, TransientError
from golfray.data.fetch_ledger import Ledger, LedgerEntry, part_of
from golfray.data.shard_header import diagnose_shard, tokens_in
from golfray.data.sources import Patience, Remote, Source

CHUNK_BYTES = 1 << 20

T = TypeVar("T")
FileKind = Literal["tokenizer", "val", "train", "documents"]


@dataclasses.dataclass(frozen=True)
class FetchFile:
    """One file of a fetch: ``path`` in the source, ``target`` on disk, ``added`` the header written in front of it."""

    kind: FileKind
    path: str
    target: pathlib.Path
    remote: Remote
    added: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of the whole file on disk."""
        return len(self.added) + self.remote.size

    @property
    def is_shard(self) -> bool:
        """Whether it holds tokens."""
        return self.kind in ("val", "train")


@dataclasses.dataclass(frozen=True)
class LocalState:
    """What is on disk of a file: all of it (not yet read through), or ``have`` bytes that are continued, or nothing.

    ``discarded`` bytes are there but cannot be used, because of ``reason``.
    """

    is_there: bool
    have: int
    discarded: int = 0
    reason: str = ""


class Listener(Protocol):
    """Told how a fetch goes on."""

    def say(self, line: str) -> None:
        """Something a person should know now."""
        ...

    def at(self, file: FetchFile, position: int) -> None:
        """``position`` bytes of a file are on disk."""
        ...

    def done(self, file: FetchFile, was_there: bool) -> None:
        """A file is in its place and verified."""
        ...


def local_state(file: FetchFile, ledger: Ledger) -> LocalState:
    """Look at what is on disk, without reading files through and without changing anything.

    Raises ``DataError`` where another file is in the place, one that this source does not account for.
    """
    entry, part = ledger.get(file.target), part_of(file.target)
    if file.target.exists():
        size = file.target.stat().st_size
        ours = entry is not None
        if entry is not None and not entry.is_of(file.remote, len(file.added)):
            return LocalState(False, 0, size, "is no longer what the source has")
        if not file.target.is_file():
            raise DataError(f"{file.target}: must be a file; move it away, or choose another folder with --to")
        problem, whole = _problem_of_size(file, size)
        if problem and whole and not ours:
            raise DataError(
                f"{file.target}: {problem}, and golfray did not fetch it; move it away, or choose another folder "
                "with --to"
            )
        return LocalState(False, 0, size, problem) if problem else LocalState(True, size)
    if not part.is_symlink() and part.is_file():
        size = part.stat().st_size
        if entry is None or not entry.is_of(file.remote, len(file.added)):
            return LocalState(False, 0, size, "was begun, but the source has another file now")
        if len(file.added) < size <= file.size:
            return LocalState(False, size)
        return LocalState(False, 0, size, "was begun, but is of no use")
    return LocalState(False, 0)


def _problem_of_size(file: FetchFile, size: int) -> tuple[str, bool]:
    """What a look at size and header finds, empty for nothing; and whether the file is whole as far as it says."""
    if not file.is_shard:
        return (f"has {size:,} bytes where the source has {file.size:,}" if size != file.size else ""), True
    if finding := diagnose_shard(file.target):
        return finding.what, False
    tokens, expected = tokens_in(size), tokens_in(file.size)
    return (f"has {tokens:,} tokens where the source has {expected:,}" if tokens != expected else ""), True


class FileFetcher:
    """Brings files into place, one at a time."""

    def __init__(self, source: Source, ledger: Ledger, patience: Patience, listener: Listener) -> None:
        self.source, self.ledger, self.patience, self.listener = source, ledger, patience, listener
        self._moved = 0

    def obtain(self, file: FetchFile, verify: Callable[[pathlib.Path], tuple[str, T]]) -> T:
        """Have the file in place, and return what ``verify`` found in it.

        ``verify(path)`` reads a whole file and returns its sha256 and what else it found, or raises ``DataError``.
        Raises ``DataError`` where the source's file is not what it must be, ``FetchError`` where network or server
        fail, and ``CannotWriteError`` where the disk does.
        """
        with disk_errors(file.target):
            state = local_state(file, self.ledger)
            if state.is_there:
                problem, found = self._verify_there(file, verify)
                if found is not None:
                    self.listener.at(file, file.size)
                    self.listener.done(file, True)
                    return found[0]
                state = LocalState(False, 0, file.size, problem)
            if state.reason:
                self.listener.say(f"{file.target}: {state.reason}; fetching it again")
            if not state.have:
                file.target.unlink(missing_ok=True)
                part_of(file.target).unlink(missing_ok=True)
            file.target.parent.mkdir(parents=True, exist_ok=True)
            self.ledger.set(file.target, LedgerEntry(file.remote.size, file.remote.identity, len(file.added)))
            sha256, facts = self.patience.run(lambda: self._once(file, verify), self.listener.say, lambda: self._moved)
            put_in_place(part_of(file.target), file.target)
            self._record(file, sha256)
        self.listener.done(file, False)
        return facts

    def _verify_there(
        self, file: FetchFile, verify: Callable[[pathlib.Path], tuple[str, T]]
    ) -> tuple[str, tuple[T] | None]:
        """What is wrong with a file in place, or what was found in it."""
        try:
            sha256, facts = verify(file.target)
        except DataError as error:
            return error.faults, None
        entry = self.ledger.get(file.target)
        known = (entry.sha256 if entry else None) or (None if file.added else file.remote.sha256)
        if known not in (None, sha256):
            return f"has sha256 {sha256}, must have {known}", None
        self._record(file, sha256)
        return "", (facts,)

    def _once(self, file: FetchFile, verify: Callable[[pathlib.Path], tuple[str, T]]) -> tuple[str, T]:
        part = part_of(file.target)
        continued = self._transfer(file, part)
        where = self.source.where(file.path)
        try:
            sha256, facts = verify(part)
        except DataError as error:
            part.unlink()
            problem = f"{where}: what came is not what the manifest says: {error.faults}"
            if continued:
                raise TransientError(f"{problem}; it was put together from two transfers") from error
            raise DataError(problem) from error
        if file.remote.sha256 not in (None, sha256) and not file.added:
            part.unlink()
            raise TransientError(f"{where}: damaged on the way: sha256 {sha256}, must be {file.remote.sha256}")
        return sha256, facts

    def _transfer(self, file: FetchFile, part: pathlib.Path) -> bool:
        """Bring the part to its full size; returns whether bytes from before were continued."""
        where, added = self.source.where(file.path), len(file.added)
        have = max(0, part.stat().st_size - added) if part.exists() else 0
        if have == file.remote.size:
            return True
        with self.source.open(file.path, have) as stream, _open_part(part) as out:
            if (stream.size, stream.identity) != (file.remote.size, file.remote.identity):
                part.unlink()
                raise FetchError(
                    f"{where}: changed at the source while it was fetched ({file.remote.size:,} bytes, then "
                    f"{stream.size:,}); run the same command again"
                )
            position = stream.start
            out.truncate(position + added if position else 0)
            out.seek(0, os.SEEK_END)
            if not position:
                out.write(file.added)
            self.listener.at(file, added + position)
            while content := stream.read(CHUNK_BYTES):
                position += len(content)
                if position > file.remote.size:
                    part.unlink()
                    raise FetchError(f"{where}: more bytes came than the {file.remote.size:,} announced")
                out.write(content)
                self._moved += len(content)
                self.listener.at(file, added + position)
            if position < file.remote.size:
                raise TransientError(f"{where}: ended after {position:,} of {file.remote.size:,} bytes")
            out.flush()
            os.fsync(out.fileno())
        return stream.start > 0

    def _record(self, file: FetchFile, sha256: str) -> None:
        entry = LedgerEntry(file.remote.size, file.remote.identity, len(file.added), sha256)
        if entry != self.ledger.get(file.target):
            self.ledger.set(file.target, entry)


@contextlib.contextmanager
def _open_part(part: pathlib.Path) -> Iterator[BinaryIO]:
    """Open a part for writing without cutting it; a symbolic link in its place is refused, not followed."""
    handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with open(handle, "r+b") as file:
        yield file


@contextlib.contextmanager
def disk_errors(target: pathlib.Path) -> Iterator[None]:
    """Raise ``CannotWriteError``, naming the file, for what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise CannotWriteError(
            f"{error.filename or target}: {error.strerror or error}; what was fetched so far stays, and the same "
            "command continues there"
        ) from error
