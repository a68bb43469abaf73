"""Writing a study down: to the log first, then to the record, then to those who watch."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from golfray.sweep.events import EventLog, EventLogError
from golfray.sweep.observer import Observer
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.unbroken import Unbroken


class Journal:
    """The log of a study, open for writing, and what follows from it.

    ``record`` begins as what the log held and takes in whatever is written. Observers are told what is written, in
    order; what the log held before they can read there. An interruption that goes through ``unbroken`` comes before or
    after a record, never while log and record are apart. ``now`` and ``synced`` are the log's. Raises what
    :class:`EventLog` raises, and ``EventLogError`` where its records make no study.
    """

    def __init__(
        self,
        path: Path,
        observers: Sequence[Observer],
        unbroken: Unbroken,
        *,
        now: Callable[[], float] = time.time,
        synced: bool = True,
    ) -> None:
        self._observers = list(observers)
        self._unbroken = unbroken
        self._log = EventLog(path, now=now, synced=synced)
        try:
            self.record = StudyRecord.from_events(self._log.records)
        except EventLogError:
            self._log.close()
            raise

    @property
    def torn(self) -> str | None:
        """Name of the file, beside the log, that keeps a last record of which only a part was there; or None."""
        return None if self._log.torn is None else self._log.torn.name

    def write(self, event: str, **fields: Any) -> None:
        """Write one record; raises ``EventLogError`` where the log cannot be written, and nobody is told then."""
        with self._unbroken:
            written = self._log.append(event, **fields)
            self.record.apply(written)
        for observer in list(self._observers):
            self._guarded(observer, functools.partial(observer.on_event, written))

    def end_attempt(
        self, trial: int, attempt: int, job_id: str, outcome: Outcome, *, final: bool, size_reserve: float = 0.0
    ) -> None:
        """Write how an attempt ended; ``final`` and ``size_reserve`` as ``AttemptRecord`` has them."""
        where = {"trial": trial, "attempt": attempt, "job_id": job_id}
        self.write("attempt_ended", **where, outcome=outcome.to_dict(), final=final, size_reserve=size_reserve)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        unwritten: EventLogError | None = None
        for observer in list(self._observers):
            try:
                self._guarded(observer, observer.close)
            except EventLogError as broken:
                unwritten = broken
        self._log.close()
        # Where there is an error already, it is worse than an observer's, or it is this same broken log.
        if unwritten is not None and error is None:
            raise unwritten

    def _guarded(self, observer: Observer, call: Callable[[], None]) -> None:
        """An observer that fails is told nothing more, and the log says so: it must not touch the trials."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a tracker or a terminal may raise
            self._observers.remove(observer)
            self.write("observer_failed", observer=type(observer).__name__, error=f"{type(error).__name__}: {error}")
