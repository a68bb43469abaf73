"""A study's whole event log into an MLflow store: what ``golfray track`` does, and ``golfray ui`` before it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from golfray.sweep.events import LOG_NAME, EventLogError
from golfray.tracking.log_follower import LogFollower
from golfray.tracking.store import Store
from golfray.tracking.store_writer import Counts, StoreWriter


def replay(study_folder: Path, store: Store | None = None, progress: Callable[[int], None] | None = None) -> Counts:
    """Write to the store (None: the study's own) what the study's log has and the store lacks; returns what that was.

    A store that is missing, half written or complete ends up the same, and so do runs that the log leaves open: they
    stay RUNNING. Only while no driver runs the study, which writes to its store itself. ``progress`` is told how many
    records were taken in so far. Raises ``TrackingError``, and ``EventLogError`` where the log is damaged or empty.
    """
    path = study_folder / LOG_NAME
    if not path.is_file():
        raise EventLogError(f"{study_folder}: no study here ({LOG_NAME} is missing)")
    if path.stat().st_size == 0:
        raise EventLogError(f"{path} is empty: the study has not started yet; try again in a moment")
    writer = StoreWriter(study_folder, Store.of(study_folder) if store is None else store)
    writer.write(_watched(LogFollower(path).new_events(), progress))
    writer.finish()
    return writer.counts


def _watched(events: Iterable[dict[str, Any]], progress: Callable[[int], None] | None) -> Iterator[dict[str, Any]]:
    for event in events:
        yield event
        if progress is not None:
            progress(event["seq"] + 1)
