"""When a job counts as hung: what the phase limits say of one line of the ledger."""

from __future__ import annotations

import dataclasses

from golfray.cluster.ledger import Entry, Stage
from golfray.sweep.limits import OWN_TIME, PhaseLimits
from golfray.sweep.trial_record import setting_at

# A report may be this many times later than those before it were, or than it should be by what the warm-up took.
_LATE_REPORTS = 3.0
# Where nothing says how far apart reports will be, the first one may take this many times ``progress``.
_UNKNOWN_PACE = 10.0


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
    own = OWN_TIME.get(entry.phase)
    whole = limits.of(entry.phase, None if own is None else setting_at(entry.job.settings, own))
    if whole is not None:
        missing = "no phase was entered" if entry.phase == "start" else "it was not over"
        late = _passed(Overdue(entry.phase, entry.phase, whole, missing), now - entry.phase_since)
        if late is not None:
            return late
    if entry.phase != "train":
        return None
    return _passed(_silence(entry, limits), now - entry.last_sign)


def _silence(entry: Entry, limits: PhaseLimits) -> Overdue:
    """How long training may go on without a report: ``progress``, or more where its reports are far apart by nature."""
    if entry.reports_apart is not None:
        seconds, why = _LATE_REPORTS * entry.reports_apart, f"its reports came up to {entry.reports_apart:.0f} s apart"
    elif (apart := _expected_apart(entry)) is not None:
        seconds, why = _LATE_REPORTS * apart, f"by its warm-up its reports are up to {apart:.0f} s apart"
    else:
        seconds, why = _UNKNOWN_PACE * limits.progress, "nothing had shown yet how far apart its reports are"
    if seconds <= limits.progress:
        return Overdue("train", "progress", limits.progress, "no report")
    return Overdue("train", f"progress is {limits.progress:g} s, but {why}", seconds, "no report")


def _expected_apart(entry: Entry) -> float | None:
    """Seconds between two reports at the most, by what the compile phase took; None where it made no steps.

    That phase makes the warm-up's steps, so one step takes no longer than their share of it. What a replayed run takes
    is not in its settings.
    """
    settings = entry.job.settings
    warmup, points = (setting_at(settings, path) for path in ("schedule.warmup_steps", "runtime.log_points"))
    taken = entry.phases.get("compile")
    if not warmup or not points or taken is None or settings.get("clock_trace"):
        return None
    step_s = taken / warmup
    steps, seconds = (setting_at(settings, path) for path in ("stop.steps", "stop.seconds"))
    if seconds is not None:
        return float(max(seconds / points, step_s))
    return None if steps is None else float(max(steps / points, 1.0) * step_s)


def _passed(limit: Overdue, elapsed_s: float) -> Overdue | None:
    return limit if elapsed_s > limit.seconds else None
