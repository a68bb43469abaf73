"""MLflow as an Observer of the study: a thread of its own follows the event log into the store.

The study never waits for MLflow. ``on_event`` only wakes the thread; the log is the queue between them, so nothing is
held in memory while a store is down, and nothing is lost. A store that fails is tried again, each time later, by
going through the log from its start with :class:`golfray.tracking.store_writer.StoreWriter`, which writes what lacks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.sweep.events import LOG_NAME
from golfray.tracking.client import set_environment
from golfray.tracking.log_follower import LogFollower
from golfray.tracking.store import Store, TrackingError
from golfray.tracking.store_writer import StoreWriter

CLOSE_SECONDS = 15.0
"""How long the end of a study may wait for MLflow."""

SILENT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class MlflowObserver:
    """Writes a study into an MLflow store as it happens; only the driver's process may have one.

    ``say`` gets the few lines meant for the person, always on the thread that calls :meth:`on_event` or :meth:`close`:
    one when the store fails for the first time, one when it works again, and at the end what it lacks and how to
    complete it. ``close_s``: how long the end of the study may wait; None: ``CLOSE_SECONDS``.
    """

    def __init__(
        self,
        study_folder: Path,
        store: Store | None = None,
        say: Callable[[str], None] = print,
        close_s: float | None = None,
    ) -> None:
        self._close_s = close_s
        self._folder = study_folder
        self._store = Store.of(study_folder) if store is None else store
        self._say = say
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._trouble: TrackingError | None = None
        self._has_failed = False
        self._has_recovered = False
        self._bug: Exception | None = None
        self._complete = False
        self._written = self._told = -1
        self._started = False
        # A daemon: a call that hangs in it does not hold the process when the study has ended.
        self._thread = threading.Thread(target=self._run, name="golfray-mlflow", daemon=True)
        set_environment()

    def on_event(self, event: dict[str, Any]) -> None:
        """Note that the log has a new record. Returns at once, whatever the store does.

        Raises ``TrackingError`` where no runs can be made of the records, which is a bug and no matter of the store.
        """
        self._told = event["seq"]
        if not self._started:
            # Not before the first record: importing MLflow takes seconds, and lanes start meanwhile.
            self._thread.start()
            self._started = True
        self._wake.set()
        self._pass_on()

    def close(self) -> None:
        """Write what is left, for at most ``close_s``, and say what could not be written.

        Raises ``TrackingError`` as :meth:`on_event` does.
        """
        if not self._started:
            return
        self._closing.set()
        self._wake.set()
        self._thread.join(SILENT_SECONDS)
        if self._thread.is_alive():
            limit_s = CLOSE_SECONDS if self._close_s is None else self._close_s
            self._say(f"waiting for MLflow at {self._store.name}, {limit_s:.0f} s at most")
            self._thread.join(limit_s - SILENT_SECONDS)
        self._pass_on()
        if not self._complete:
            trouble = self._trouble or TrackingError(f"MLflow at {self._store.name}: not ready yet")
            then = f"{trouble.advice}, then: " if trouble.advice else "complete it with: "
            self._say(
                f"MLflow is behind, at record {self._written} of {self._told} ({trouble.what}); "
                f"{then}{self._store.track_command}"
            )

    def _pass_on(self) -> None:
        """Say what the thread has to say, on the caller's thread, and raise what it could not handle."""
        while not self._said.empty():
            self._say(self._said.get())
        if self._bug is not None:
            raise TrackingError(
                f"MLflow's thread ended after record {self._written}: {type(self._bug).__name__}: {self._bug}. "
                f"{self._folder / LOG_NAME} has everything."
            ) from self._bug

    def _run(self) -> None:
        """The thread: follow the log; where the store fails, try again, once more at the end of the study."""
        pause = 0.0
        try:
            while not self._complete:
                last, before = self._closing.is_set(), self._written
                try:
                    self._follow()
                except TrackingError as error:
                    self._failed(error)
                    if last:
                        return
                    worked = self._written > before
                    pause = FIRST_PAUSE_SECONDS if worked or not pause else min(2 * pause, LONGEST_PAUSE_SECONDS)
                    self._closing.wait(pause)
        except Exception as error:  # noqa: BLE001 - raised again on the study's thread
            self._bug = error

    def _follow(self) -> None:
        """Open the store and bring it up to the log's end whenever that moves; returns when the study is over."""
        follower = LogFollower(self._folder / LOG_NAME)
        writer = StoreWriter(self._folder, self._store)
        while not self._complete:
            self._wake.clear()
            # Looked at before the log is read, so that the last round sees the last record.
            last = self._closing.is_set()
            writer.write(follower.new_events())
            if last:
                writer.finish()
            else:
                writer.write_due()
            self._worked(follower.seq)
            self._complete = last
            if not last:
                self._wake.wait()

    def _failed(self, error: TrackingError) -> None:
        self._trouble = error
        if not self._has_failed:
            self._said.put(f"{error}; trials go on, and what MLflow lacks is written when it works again")
        self._has_failed = True

    def _worked(self, seq: int) -> None:
        if self._trouble is not None and not self._has_recovered:
            self._said.put(f"MLflow at {self._store.name} works again and has everything so far")
            self._has_recovered = True
        self._trouble, self._written = None, seq
