"""The protocol of those who watch a study: the terminal, MLflow, and whatever comes next."""

from __future__ import annotations

from typing import Any, Protocol


class Observer(Protocol):
    """Told every event of the study's log, in order, after it was written, from ``study_started`` on.

    Where a driver took the study over, it is told from ``study_resumed`` on: what was before is in the log, whole, and
    who needs it reads it there (:meth:`golfray.sweep.records.StudyRecord.load`).
    """

    def on_event(self, event: dict[str, Any]) -> None:
        """Receive one event-log record (see ``golfray.sweep.events``)."""

    def close(self) -> None:
        """The study is over; flush."""
