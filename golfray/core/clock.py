"""The one clock of a run: rank 0 reads it at each step boundary, every rank obeys the reading."""

import time

from golfray.core.gang import Gang


class Clock:
    """Training seconds so far, paused while something runs that is not training.

    ``readings`` holds what was read at each step boundary, in seconds; they decide multiplier and stop, so a run can be
    told again from them. A request to stop travels with the reading: all ranks see it at the same boundary.
    """

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
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
        """Rank 0's training seconds and stop request, the same on every rank; waits for queued device work."""
        running = 0.0 if self.started is None else time.perf_counter() - self.started
        elapsed, stop = self.gang.broadcast_floats([self.before + running, float(stop_requested)])
        self.readings.append(elapsed)
        return elapsed, bool(stop)
