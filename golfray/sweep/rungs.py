"""Short runs first: of three complete runs at a ninth of the length the best runs again at a third, and so on.

Successive halving, asynchronous (Li et al. 2018, arXiv:1810.05934): whenever a run is to be asked, the best third of a
rung that has not been promoted yet goes up, the highest rung first; where there is none, a new point starts at the
bottom. Every run is whole: its schedule is that of its own length, so that it is at its best when it ends and is
compared with runs of its length alone. How many bytes a short run takes says nothing of a long one and decides nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from golfray.config.resolve import Resolved
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import RUNG, TrialRecord

REDUCTION = 3
"""Of so many runs of a rung one goes up, to a run so many times as long."""

SHARES = (1 / 9, 1 / 3, 1.0)
"""Length of the runs of each rung, the last one that of every other trial."""

# All that is counted in steps: a run of a third of the length has a third of each.
SCALED_STEPS = ("schedule.warmdown_steps", "muon.momentum_warmup_steps", "averaging.swa_every_steps")


@dataclasses.dataclass(frozen=True)
class Promotion:
    """A run that has earned a longer one, and the share of the full length that this has."""

    trial: TrialRecord
    share: float


def shortened(resolved: Resolved, share: float) -> Resolved:
    """The configuration of a run of ``share`` of the length. Raises :class:`ConfigError` where there is no such run."""
    if share == 1.0:
        return resolved
    config = resolved.config
    values: dict[str, Any] = {
        path: max(round(share * config.value(path)), 1) if config.value(path) else 0 for path in SCALED_STEPS
    }
    if config.stop.steps is not None:
        values["stop.steps"] = max(round(share * config.stop.steps), 1)
    if config.stop.seconds is not None:
        values["stop.seconds"] = share * config.stop.seconds
    return resolved.with_values(values, f"a run of {share:.2g} of the length")


def promotion(record: StudyRecord) -> Promotion | None:
    """The run that goes up next, by what the log says; None where none has earned it."""
    promoted = {trial.promotes for trial in record.trials if trial.promotes is not None}
    for share, longer in reversed(list(itertools.pairwise(SHARES))):
        ended = [
            (trial.bpb, trial.number)
            for trial in record.trials
            if trial.role == RUNG and trial.share == share and trial.bpb is not None
        ]
        for _, number in sorted(ended)[: len(ended) // REDUCTION]:
            if number not in promoted:
                return Promotion(record.trials[number], longer)
    return None
