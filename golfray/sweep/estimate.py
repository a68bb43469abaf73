"""How long the attempts that run will still take, from their settings and from what this study's trials took."""

from __future__ import annotations

import statistics

from golfray.sweep.limits import PHASES
from golfray.sweep.records import AttemptRecord, StudyRecord, TrialRecord


def running_attempts(record: StudyRecord) -> list[tuple[TrialRecord, AttemptRecord]]:
    """Attempts that were submitted and have not ended, with their trials."""
    last = [(trial, trial.attempt) for trial in record.trials]
    return [(trial, attempt) for trial, attempt in last if attempt is not None and attempt.outcome is None]


def seconds_left(record: StudyRecord, now: float) -> float | None:
    """Seconds until the last running attempt ends, as they run side by side; ``now`` in unix seconds.

    Training takes ``stop.seconds`` where the trial has it; whatever else is to come takes the mean of the study's
    trials that were scored, and nothing where none was. None where nothing says how long training takes.
    """
    left = [_attempt_left(record, trial, attempt, now) for trial, attempt in running_attempts(record)]
    known = [seconds for seconds in left if seconds is not None]
    return max(known, default=0.0) if len(known) == len(left) else None


def running_words(record: StudyRecord, now: float) -> str:
    """The same for a person who waits."""
    count = len(running_attempts(record))
    if count == 0:
        return "no trial is running"
    seconds = seconds_left(record, now)
    who, need = ("the running trial", "needs") if count == 1 else (f"the {count} running trials", "need")
    return f"{who} {need} {'an unknown time' if seconds is None else f'about {seconds:.0f} s'} more"


def _attempt_left(record: StudyRecord, trial: TrialRecord, attempt: AttemptRecord, now: float) -> float | None:
    begun = dict(attempt.phases)
    current = attempt.phase
    total = 0.0
    # The wait for a lane is not known, and short where there are as many lanes as running attempts.
    coming = PHASES[PHASES.index(current) if current in PHASES else 1 :]
    for phase in coming:
        takes = _phase_takes(record, trial, phase)
        if takes is None:
            return None
        total += max(0.0, takes - (now - begun[phase])) if phase == current else takes
    return total


def _phase_takes(record: StudyRecord, trial: TrialRecord, phase: str) -> float | None:
    if phase == "train" and trial.settings is not None and trial.settings["stop"]["seconds"] is not None:
        return float(trial.settings["stop"]["seconds"])
    ends = [other.outcome for other in record.trials if other.bpb is not None]
    seen = [end.phases[phase] for end in ends if end is not None and phase in end.phases]
    if seen:
        return statistics.fmean(seen)
    return None if phase == "train" else 0.0
