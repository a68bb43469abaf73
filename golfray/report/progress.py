"""How far a study and its running trials are, from the record alone."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Mapping

from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import CONFIRM, EXTRA_SEED, REPLICATE, TrialRecord

# Before an attempt says itself where it is: nothing has taken it yet; a lane has.
WAITING = "waiting"
STARTING = "starting"


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a running attempt is: a phase, since when (unix seconds), and the last point of its curve.

    ``step`` is None, and ``metrics`` empty, before the first point. ``share`` is how much of its training is done, 0 to
    1, None where that is not known.
    """

    phase: str
    since: float
    step: int | None
    metrics: Mapping[str, float]
    share: float | None

    @property
    def loss(self) -> float | None:
        """The training loss of the last point."""
        return self.metrics.get("train/loss")


def running_trials(record: StudyRecord) -> list[TrialRecord]:
    """Trials with an attempt that was submitted and has not ended."""
    return [trial for trial in record.trials if trial.attempt is not None and trial.attempt.outcome is None]


def ended_trials(record: StudyRecord) -> int:
    """How many trials have ended for good; none of those that were refused for their size, which no budget counts."""
    return sum(trial.outcome is not None and not trial.too_large for trial in record.trials)


def counts_words(record: StudyRecord) -> str:
    """How many of those ended as what, how many run, and how many wait for it; "" where none was asked yet."""
    running = {trial.number for trial in running_trials(record)}
    ends = collections.Counter(
        trial.outcome.kind.value if trial.outcome is not None else "running" if trial.number in running else WAITING
        for trial in record.trials
        if not trial.too_large
    )
    return ", ".join(f"{count} {kind}" for kind, count in ends.items())


def too_large_words(count: int) -> str:
    """How many points were refused for their size."""
    return f"{'1 point was' if count == 1 else f'{count} points were'} refused before training, too large to fit"


def planned_trials(record: StudyRecord) -> int | None:
    """How many trials the budget comes to, with all runs on further seeds; None where time limits it."""
    trials = record.header["budget"].get("trials")
    if trials is None:
        return None
    roles = [trial.role for trial in record.trials]
    replicates = max(record.header["space"].get("replicates", 1) - 1, roles.count(REPLICATE))
    return int(trials) + replicates + roles.count(EXTRA_SEED) + roles.count(CONFIRM)


def position_of(trial: TrialRecord) -> Position | None:
    """Where the running attempt of a trial is; None where none runs."""
    attempt = trial.attempt
    if attempt is None or attempt.outcome is not None:
        return None
    step, metrics = attempt.curve[-1] if attempt.curve else (None, {})
    phase, since = attempt.phases[-1] if attempt.phases else (STARTING, attempt.started)
    if attempt.curve and not attempt.phases:
        # An executor that announces no phases; a point is one of training all the same.
        phase = "train"
    if since is None:
        phase, since = WAITING, attempt.submitted
    return Position(phase, since or 0.0, step, metrics, _share(trial, step, metrics))


def _share(trial: TrialRecord, step: int | None, metrics: Mapping[str, float]) -> float | None:
    if step is None:
        return None
    steps, seconds = trial.setting("stop.steps"), trial.setting("stop.seconds")
    shares = [step / steps] if steps else []
    if seconds and "elapsed_s" in metrics:
        shares.append(metrics["elapsed_s"] / seconds)
    return min(max(shares), 1.0) if shares else None


def seconds_a_trial(record: StudyRecord) -> float | None:
    """Mean seconds of the attempts that ran to their end, from when a lane took them; None where none has."""
    whole = [
        attempt.ended - attempt.started
        for trial in record.trials
        for attempt in trial.attempts
        if attempt.started is not None
        and attempt.ended is not None
        and attempt.outcome is not None
        and attempt.outcome.kind in (Kind.SCORED, Kind.INFEASIBLE)
    ]
    return statistics.fmean(whole) if whole else None


def study_seconds_left(record: StudyRecord, now: float) -> float | None:
    """Roughly how long the study will still take, if every trial takes what the mean one took so far.

    None before one has run to its end, or where nothing limits the study. ``now`` is in unix seconds.
    """
    mean, planned = seconds_a_trial(record), planned_trials(record)
    minutes = record.header["budget"].get("minutes")
    if mean is None or (planned is None and minutes is None):
        return None
    begun = [trial.attempt.started for trial in running_trials(record) if trial.attempt is not None]
    rest = [mean if start is None else max(mean - (now - start), 0.0) for start in begun]
    longest = max(rest, default=0.0)
    limits = []
    if planned is not None:
        coming = max(planned - ended_trials(record) - len(rest), 0)
        limits.append(max((coming * mean + sum(rest)) / max(record.generations[-1].now.slots, 1), longest))
    if minutes is not None:
        # When the minutes are over nothing is started any more, and what runs then may end.
        until = 60 * minutes - record.driven_seconds - (now - (record.last_event or now))
        limits.append(max(until, 0.0) + (mean if until > 0 else longest))
    return min(limits)
