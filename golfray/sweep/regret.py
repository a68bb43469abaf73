"""What stopping has saved a study, and what it may have cost: hopeless trials that ran on all the same say it.

Of a stopped trial nobody knows how it would have ended. The audited ones (:func:`golfray.sweep.stopping.is_audited`)
were chosen among all hopeless trials without a look at them, so what became of those holds for the others on average.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

from golfray.sweep.limits import PHASES
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import LateCheck, TrialRecord

_AFTER_TRAINING = PHASES[PHASES.index("train") + 1 :]


@dataclasses.dataclass(frozen=True)
class Stopped:
    """What the late check did to a study.

    ``stopped``: trials that it ended. ``saved_s``: lane-seconds that they would still have taken, by their own pace and
    what finished runs took after training. ``audited``: hopeless trials that ran on and have ended. ``wrong``: those of
    them that came out feasible and below what was the best score at their check; ``regret``: by how many bits per byte,
    on average over the audited; None where none has ended.
    """

    stopped: int
    saved_s: float
    audited: int
    wrong: int
    regret: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return dataclasses.asdict(self)

    def words(self) -> str:
        """For a person, on one line."""
        if self.stopped == self.audited == 0:
            return "late check: no trial was found hopeless"
        if self.regret is None:
            known = "none of those found hopeless ran on, so what it costs is unknown"
        else:
            known = f"{self.wrong} of {self.audited} audited would have been best, regret {self.regret:.4f} BPB a trial"
        return f"late check: {self.stopped} stopped, about {self.saved_s / 60:.0f} lane-minutes saved; {known}"


def stopped_trials(record: StudyRecord) -> Stopped:
    """What the late check has done so far; all zero where it is off."""
    hopeless = [
        (trial, check)
        for trial in record.trials
        if trial.outcome is not None and (check := _check_of(trial)) is not None
    ]
    stopped = [(trial, check) for trial, check in hopeless if trial.outcome and trial.outcome.kind is Kind.STOPPED]
    after = [_after_training(trial) for trial in record.trials if trial.bpb is not None]
    rest = statistics.fmean(after) if after else 0.0
    saved = sum(_left_to_train(trial, check) + rest for trial, check in stopped)
    candidates = {trial.number for trial in record.candidates}
    audited = [(trial, check) for trial, check in hopeless if check.audited and trial.outcome]
    gains = [
        max(check.bar - trial.bpb, 0.0) if trial.bpb is not None and trial.number in candidates else 0.0
        for trial, check in audited
    ]
    regret = statistics.fmean(gains) if gains else None
    return Stopped(len(stopped), saved, len(audited), sum(gain > 0 for gain in gains), regret)


def _check_of(trial: TrialRecord) -> LateCheck | None:
    return None if trial.attempt is None else trial.attempt.late_check


def _left_to_train(trial: TrialRecord, check: LateCheck) -> float:
    """Seconds, at the pace at which it came to ``check.share`` of its run."""
    assert trial.outcome is not None
    trained = trial.outcome.phases.get("train", 0.0)
    return trained / check.share - trained


def _after_training(trial: TrialRecord) -> float:
    assert trial.outcome is not None
    return sum(trial.outcome.phases.get(name, 0.0) for name in _AFTER_TRAINING)
