"""The one clock of a run: rank 0 reads it at each step boundary, every rank obeys the reading."""

import json
import pathlib
import time

from golfray.core.gang import Gang


class Clock:
    """Training seconds so far, paused while something runs that is not training.

    ``readings`` holds what was read at each step boundary, in seconds; they decide multiplier and stop, so a run can be
    told again from them: ``trace`` holds the readings of such a run, and they are what :meth:`read` then returns. A
    request to stop travels with the reading: all ranks see it at the same boundary.
    """

    def __init__(self, gang: Gang, trace: list[float] | None = None) -> None:
        self.gang = gang
        self.trace = trace
        self.readings: list[float] = []
        self.before = 0.0
        self.started: float | None = None

    def start(self) -> None:
        """Start, or go on after a pause; call it when the device is idle."""
        self.started = time.perf_counter()

    def pause(self) -> None:
        """Stop counting."""
        assert self.started is not None
        self.before += time.perf_counter() - self.started
        self.started = None

    def read(self, stop_requested: bool) -> tuple[float, bool]:
        """Rank 0's training seconds and stop request, the same on every rank; waits for queued device work.

        Raises ``ValueError`` where a trace has no further reading: it is of a run with other settings.
        """
        elapsed = self.before + (0.0 if self.started is None else time.perf_counter() - self.started)
        if self.trace is not None:
            if len(self.readings) >= len(self.trace):
                raise ValueError(f"clock_trace has {len(self.trace)} readings, too few for these settings")
            elapsed = self.trace[len(self.readings)]
        elapsed, stop = self.gang.broadcast_floats([elapsed, float(stop_requested)])
        self.readings.append(elapsed)
        return elapsed, bool(stop)


def load_trace(path: str) -> list[float] | None:
    """The readings of a run's clock.json, in seconds; None where ``path`` is empty.

    Raises ``ValueError`` where the file holds none.
    """
    if not path:
        return None
    readings = json.loads(pathlib.Path(path).read_text()).get("readings_s")
    if not readings:
        raise ValueError(f"{path}: no readings_s in it; give the clock.json of a run")
    return [float(reading) for reading in readings]
