"""How long an attempt may be in each phase before it counts as hung: bounds against waiting for ever, no budget."""

from __future__ import annotations

import dataclasses

PHASES = ("start", "data", "compile", "train", "validate", "export", "score")


@dataclasses.dataclass(frozen=True)
class PhaseLimits:
    """Seconds. ``start`` is the wait from submission to a lane's ranks having taken the job while a lane is free.

    ``train`` None: the run's own wallclock (pauses for reports included) twice over plus two minutes; without a
    wallclock there is no limit on the whole. ``progress``: longest silence inside ``train``, where a run reports
    ``log_points`` times; three times as long as its reports are apart, where that is more.
    """

    start: float = 600.0
    data: float = 600.0
    compile: float = 1800.0
    train: float | None = None
    progress: float = 180.0
    validate: float = 1800.0
    export: float = 900.0
    score: float = 1800.0

    def of(self, phase: str, stop_seconds: float | None) -> float | None:
        """The limit of one of :data:`PHASES` for a run that trains for ``stop_seconds``; None where there is none."""
        if phase == "train" and self.train is None:
            return None if stop_seconds is None else 2 * stop_seconds + 120.0
        limit: float | None = getattr(self, phase)
        return limit
