"""The event log: append-only JSON lines, the only truth of a study.

Every record is one line ``{"seq": int, "time": unix seconds, "event": type, ...}``; ``seq`` counts from 0 without gaps.
The types, in the order in which a trial meets them:

``study_started``, ``trial_asked``, ``attempt_submitted``, ``attempt_started``, ``phase``, ``progress``,
``late_check`` where one found a trial hopeless, ``attempt_ended``, ``study_ended``; ``study_resumed`` where a later
driver took over. Their fields are written by
:mod:`golfray.sweep.study`, :mod:`golfray.sweep.agenda` and :mod:`golfray.sweep.resume`, and read by
:mod:`golfray.sweep.records`. Readers pass over types that they do not know.

Only one process writes. A record reaches the operating system before :meth:`EventLog.append` returns, so it outlives
a killed writer; records of GPU minutes spent also reach the disk (see ``DURABLE``).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

LOG_NAME = "events.jsonl"

# Losing one of these to a power cut loses a result, or the time that an attempt held a machine; losing any other loses
# only a line of a curve or of a schedule.
DURABLE = frozenset({"attempt_started", "attempt_ended", "study_started", "study_resumed", "study_ended"})

_NON_FINITE = "$float"

# Far above what any record needs, far below where the recursion of those who print records ends.
_DEEPEST = 50


class EventLogError(Exception):
    """The log cannot be read or written as a log; the message names the file and the line."""

    exit_code = 2


class LogUnwritable(EventLogError):
    """The log cannot be written: a full or read-only disk, or the file is no longer there."""

    exit_code = 4


class StudyLocked(EventLogError):
    """Another driver is at work on the study, or has taken it over."""

    exit_code = 5


def encode_record(record: dict[str, Any]) -> str:
    """One line of strict JSON, without the newline.

    NaN and the infinities have no form in JSON; they are written as ``{"$float": "nan" | "inf" | "-inf"}``.
    Raises ``TypeError`` where a value is none of dict, list, tuple, str, bool, int, float, None.
    """
    return json.dumps(_encode(record), allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def decode_record(line: str | bytes) -> dict[str, Any]:
    """Inverse of :func:`encode_record` (tuples come back as lists). Raises ``ValueError`` on anything but an object."""
    try:
        record = json.loads(line, object_hook=_decode_object)
    except RecursionError:
        raise ValueError(f"nested more than {_DEEPEST} levels deep") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    _refuse_depth(record)
    return record


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, in order, while its writer may still be at work.

    A torn last line is not yielded: it is either being written or lost. Raises ``EventLogError`` on a damaged line
    before the last, or where ``seq`` has a gap, or on what is no regular file.
    """
    _refuse_pipes(path)
    yield from events_in(path.read_bytes(), path)


def events_in(content: bytes, place: object) -> Iterator[dict[str, Any]]:
    """The same of a log's bytes, which messages say are from ``place``."""
    lines, _torn = _split_lines(content)
    yield from _parse_lines(place, lines)


def without_torn(content: bytes) -> bytes:
    """A log's bytes up to the end of its last whole record."""
    _lines, torn = _split_lines(content)
    return content[: len(content) - len(torn)]


class EventLog:
    """The one writer of a log. Opening an existing log continues it after cutting a torn last line.

    ``records`` is what the log held when it was opened; ``torn`` is None, or the file that keeps what was cut. ``now``
    gives the records' times in unix seconds; without ``synced`` no record waits for the disk. Raises
    ``StudyLocked`` where another process writes the log, ``LogUnwritable`` where it cannot be opened for writing,
    ``EventLogError`` where it is damaged before its last line.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time, synced: bool = True) -> None:
        self.path = path
        self._now = now
        self._synced = synced
        self.torn: Path | None = None
        created = not path.exists()
        if not created:
            _refuse_pipes(path)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._lock()
            self.records = self._recover()
            if created:
                _sync_folder(path.parent)
        except OSError as error:
            os.close(self._fd)
            raise self._unwritable(error) from error
        except BaseException:
            os.close(self._fd)
            raise
        self._torn_by: OSError | None = None
        self._next_seq = len(self.records)
        self._size = os.fstat(self._fd).st_size

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        """Write one record and return it as a reader will see it.

        Raises ``LogUnwritable`` where it cannot be written, such as on a full disk, or where the file was deleted,
        replaced or cut; ``StudyLocked`` where another process has written to it, whose study it is then. The log ends
        with its last whole record in every case.
        """
        if self._torn_by is not None:
            raise self._unwritable(self._torn_by)
        self._check_still_ours()
        record = {"seq": self._next_seq, "time": self._now(), "event": event, **fields}
        line = encode_record(record)
        data = line.encode() + b"\n"
        left = data
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            if self._synced and event in DURABLE:
                os.fsync(self._fd)
        except OSError as error:
            self._cut_back()
            raise self._unwritable(error) from error
        self._size += len(data)
        self._next_seq += 1
        return decode_record(line)

    def close(self) -> None:
        """Flush to the disk and let another writer in. Closing twice is harmless. Raises ``LogUnwritable``."""
        if self._fd < 0:
            return
        try:
            if self._synced:
                os.fsync(self._fd)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyLocked(f"{self.path}: another process is writing this log; wait for it or stop it") from None

    def _check_still_ours(self) -> None:
        """A lock can be lost (a file system that only pretends to have them) and a file can be taken away."""
        own = os.fstat(self._fd)
        try:
            named: os.stat_result | None = os.stat(self.path)
        except FileNotFoundError:
            named = None
        if named is None or not os.path.samestat(own, named):
            what = "was deleted" if named is None else "was replaced by another file"
            raise LogUnwritable(f"{self.path}: {what} under the running study; {self._keep_copy()}")
        if own.st_size < self._size:
            raise LogUnwritable(
                f"{self.path}: was cut from {self._size} to {own.st_size} bytes under the running study; "
                "the records that are left can be resumed"
            )
        if own.st_size > self._size:
            raise StudyLocked(f"{self.path}: {self._who_wrote(own.st_size)}; this driver writes nothing more")

    def _cut_back(self) -> None:
        """Half a line with another after it would make the whole log unreadable: nothing more is written then."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            self._torn_by = error

    def _keep_copy(self) -> str:
        """Save the records of a file that no longer has its name: they are gone for good once it is closed."""
        kept = _free_name(self.path, "kept")
        try:
            kept.write_bytes(os.pread(self._fd, self._size, 0))
        except OSError as error:
            return f"its records could not be kept in {kept} ({error.strerror})"
        return f"its records are in {kept}: rename that to {self.path.name} to resume the study"

    def _who_wrote(self, size: int) -> str:
        lines, _torn = _split_lines(os.pread(self._fd, size - self._size, self._size))
        for record in map(decode_record, reversed(lines)):
            if record.get("event") == "study_resumed":
                return f"driver {record['generation']} on {record['host']} has taken the study over"
        return "another process has written to this log"

    def _unwritable(self, error: OSError) -> LogUnwritable:
        return LogUnwritable(
            f"{self.path}: cannot be written ({error.strerror}); its records are whole, and once it can be written "
            f"again `golfray tune --resume {shlex.quote(str(self.path.parent))}` goes on from them"
        )

    def _recover(self) -> list[dict[str, Any]]:
        content = self.path.read_bytes()
        lines, torn = _split_lines(content)
        records = list(_parse_lines(self.path, lines))
        if torn:
            self.torn = _free_name(self.path, "torn")
            self.torn.write_bytes(torn)
            os.ftruncate(self._fd, len(content) - len(torn))
            os.fsync(self._fd)
        return records


def _split_lines(content: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines, and what is torn: a last line without its newline, or one that the disk kept only in part."""
    *lines, tail = content.split(b"\n")
    if tail or not lines:
        return lines, tail
    try:
        decode_record(lines[-1])
    except ValueError:
        return lines[:-1], lines[-1] + b"\n"
    return lines, b""


def _parse_lines(path: object, lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for index, line in enumerate(lines):
        try:
            record = decode_record(line)
        except ValueError as error:
            raise EventLogError(f"{path}:{index + 1}: damaged record ({error}); restore the file from a copy") from None
        if record.get("seq") != index:
            raise EventLogError(
                f"{path}:{index + 1}: expected seq {index}, got {record.get('seq')!r}: lines were lost or added by hand"
            )
        yield record


def _refuse_pipes(path: Path) -> None:
    """Whoever opens a pipe waits for its other end, which nobody may ever hold."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise EventLogError(f"{path}: is no regular file, so it is no log; restore the file from a copy")


def _refuse_depth(record: dict[str, Any]) -> None:
    level: list[Any] = [record]
    for _ in range(_DEEPEST):
        level = [item for value in level for item in (value.values() if isinstance(value, dict) else value)]
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"nested more than {_DEEPEST} levels deep")


def _free_name(path: Path, what: str) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.{what}-{number}")).exists():
        number += 1
    return candidate


def _sync_folder(folder: Path) -> None:
    """A new file is only as durable as the entry of its folder."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _encode(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_NON_FINITE: str(float(value))}
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


def _decode_object(value: dict[str, Any]) -> Any:
    if value.keys() == {_NON_FINITE} and value[_NON_FINITE] in ("nan", "inf", "-inf"):
        return float(value[_NON_FINITE])
    return value
