"""How long the attempts that run will still take, from their settings and from what this study's trials took."""

from __future__ import annotations

import dataclasses
import statistics

from golfray.sweep.limits import OPTIONAL_PHASES, PHASES
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import AttemptRecord, TrialRecord


def running_attempts(record: StudyRecord) -> list[tuple[TrialRecord, AttemptRecord]]:
    """Attempts that were submitted and have not ended, with their trials."""
    last = [(trial, trial.attempt) for trial in record.trials]
    return [(trial, attempt) for trial, attempt in last if attempt is not None and attempt.outcome is None]


@dataclasses.dataclass(frozen=True)
class TimeLeft:
    """Seconds until the last running attempt ends; None where nothing says how long training takes.

    ``unknown``: phases to come that no trial of the study has shown yet; ``seconds`` is without them.
    """

    seconds: float | None
    unknown: tuple[str, ...]


def time_left(record: StudyRecord, now: float) -> TimeLeft:
    """How long the running attempts still take, as they run side by side; ``now`` in unix seconds.

    Training takes ``stop.seconds`` where the trial has it, less what is reserved of them; whatever else is to come
    takes the mean of the study's trials that were scored.
    """
    parts = [_attempt_left(record, trial, attempt, now) for trial, attempt in running_attempts(record)]
    missing = {phase for part in parts for phase, seconds in part.items() if seconds is None}
    seconds = (sum(seconds for seconds in part.values() if seconds is not None) for part in parts)
    unknown = tuple(phase for phase in PHASES if phase in missing)
    return TimeLeft(None if "train" in missing else max(seconds, default=0.0), unknown)


def running_words(record: StudyRecord, now: float) -> str:
    """The same for a person who waits."""
    count = len(running_attempts(record))
    if count == 0:
        return "no trial is running"
    left = time_left(record, now)
    who, need = ("the running trial", "needs") if count == 1 else (f"the {count} running trials", "need")
    if left.seconds is None:
        return f"{who} {need} an unknown time more"
    if left.unknown:
        *others, last = left.unknown
        phases = f"{', '.join(others)} and {last}" if others else last
        return f"{who} {need} at least {left.seconds:.0f} s more, and what no trial has shown yet: {phases}"
    return f"{who} {need} about {left.seconds:.0f} s more"


def _attempt_left(
    record: StudyRecord, trial: TrialRecord, attempt: AttemptRecord, now: float
) -> dict[str, float | None]:
    """Seconds that are left of the phase it is in and of each that is to come; None where they are not known."""
    begun = dict(attempt.phases)
    current = attempt.phase
    # The wait for a lane is not known, and short where there are as many lanes as running attempts.
    coming = PHASES[PHASES.index(current) if current in PHASES else 1 :]
    asked = [phase for phase in coming if phase not in OPTIONAL_PHASES or trial.setting(OPTIONAL_PHASES[phase])]
    left = {phase: _phase_takes(record, trial, phase) for phase in asked}
    takes = left.get(current) if current is not None else None
    if current is not None and takes is not None:
        left[current] = max(0.0, takes - (now - begun[current]))
    return left


def _phase_takes(record: StudyRecord, trial: TrialRecord, phase: str) -> float | None:
    seconds = trial.setting("stop.seconds") if phase == "train" else None
    if seconds is not None:
        reserve = trial.setting("export.gptq_reserve_seconds") if trial.setting("export.gptq") else 0.0
        return float(seconds - reserve)
    ends = [other.outcome for other in record.trials if other.bpb is not None and other.share == trial.share]
    seen = [end.phases[phase] for end in ends if end is not None and phase in end.phases]
    return statistics.fmean(seen) if seen else None
