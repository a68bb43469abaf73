"""How long an attempt may be in each phase before it counts as hung: bounds against waiting for ever, no budget."""

from __future__ import annotations

import dataclasses

PHASES = ("start", "data", "compile", "train", "validate", "calibrate", "search", "export", "score", "sliding")

# Phases that only some trials have, and the setting that asks for them by being neither false nor null.
OPTIONAL_PHASES = {
    "calibrate": "export.gptq",
    "search": "export.search",
    "sliding": "evaluation.sliding_stride",
}

# Phases for which a run has a time of its own, and the setting that says it.
OWN_TIME = {"train": "stop.seconds", "sliding": "evaluation.sliding_seconds"}


@dataclasses.dataclass(frozen=True)
class PhaseLimits:
    """Seconds. ``start`` is the wait from submission to a lane's ranks having taken the job while a lane is free.

    ``train`` and ``sliding`` None: the run's own time for it (pauses for reports included) twice over plus two minutes;
    without such a time there is no limit on the whole. Of the sliding windows that time ends only themselves, cf.
    ``evaluation.sliding_seconds``; this limit is for what does not listen. ``progress``: longest silence inside
    ``train``, where a run reports ``log_points`` times; three times as long as its reports are apart, where that is
    more.
    """

    start: float = 600.0
    data: float = 600.0
    compile: float = 1800.0
    train: float | None = None
    progress: float = 180.0
    validate: float = 1800.0
    calibrate: float = 900.0
    search: float = 3600.0
    export: float = 900.0
    score: float = 1800.0
    sliding: float | None = None

    def of(self, phase: str, own_s: float | None) -> float | None:
        """The limit of one of :data:`PHASES` for a run whose settings give it ``own_s``; None where there is none."""
        limit: float | None = getattr(self, phase)
        if limit is None and own_s is not None:
            return 2 * own_s + 120.0
        return limit
