"""When a job counts as hung: what the phase limits say of one line of the ledger."""

from __future__ import annotations

import dataclasses

from golfray.cluster.ledger import Entry, Stage
from golfray.sweep.limits import PhaseLimits

# A run that trains by the clock reports every stop.seconds / log_points; one report may be this many times later.
_LATE_REPORTS = 3.0


@dataclasses.dataclass(frozen=True)
class Overdue:
    """A limit that was passed: the phase the job was in, the limit's name and seconds, and what did not happen."""

    phase: str
    limit: str
    seconds: float
    missing: str

    @property
    def error(self) -> str:
        """For :attr:`golfray.sweep.outcome.Outcome.error`."""
        return f"phase limit: {self.phase}"

    def describe(self) -> str:
        """The first words of the outcome's reason."""
        return f"hung in {self.phase}: {self.missing} for {self.seconds:g} s (limit {self.limit})"


def overdue(entry: Entry, limits: PhaseLimits, now: float) -> Overdue | None:
    """The first limit that a job has passed at ``now``, seconds of the ledger's clock; None where it is in time."""
    if entry.stage is Stage.FINISHED:
        return None
    if entry.stage is not Stage.RUNNING:
        missing = "not every rank took it" if entry.stage is Stage.OFFERED else "no lane took it, though one was free"
        return _passed(Overdue("start", "start", limits.start, missing), now - entry.waiting_since)
    settings = entry.job.settings
    stop, runtime, evaluation = (settings.get(name, {}) for name in ("stop", "runtime", "evaluation"))
    seconds = stop.get("seconds")
    own = {"train": seconds, "sliding": evaluation.get("sliding_seconds")}
    whole = limits.of(entry.phase, own.get(entry.phase))
    if whole is not None:
        missing = "no phase was entered" if entry.phase == "start" else "it was not over"
        late = _passed(Overdue(entry.phase, entry.phase, whole, missing), now - entry.phase_since)
        if late is not None:
            return late
    if entry.phase != "train":
        return None
    silence = limits.progress
    if seconds is not None and runtime.get("log_points"):
        silence = max(silence, _LATE_REPORTS * seconds / runtime["log_points"])
    return _passed(Overdue("train", "progress", silence, "no report"), now - entry.last_sign)


def _passed(limit: Overdue, elapsed_s: float) -> Overdue | None:
    return limit if elapsed_s > limit.seconds else None
