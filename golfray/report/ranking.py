"""The order in which trials are shown, everywhere the same."""

from __future__ import annotations

from golfray.sweep.choosing import choose
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import TrialRecord


def ranked_trials(record: StudyRecord) -> list[TrialRecord]:
    """Trials in the order of the table.

    First those that may be best, each configuration once, by posterior mean; then repetitions on other seeds and scores
    of another fidelity; then over-cap ones by score, then the rest in the order in which they were asked.
    """
    places = ranks(record)

    def order(trial: TrialRecord) -> tuple[int, float, int]:
        if trial.number in places:
            return 0, places[trial.number], trial.number
        kind = trial.outcome.kind if trial.outcome is not None else None
        group = {Kind.SCORED: 1, Kind.INFEASIBLE: 2}.get(kind, 3) if kind is not None else 4
        return group, trial.bpb if trial.bpb is not None and group < 3 else 0.0, trial.number

    return sorted(record.trials, key=order)


def ranks(record: StudyRecord) -> dict[int, int]:
    """Rank, counted from 1, by the number of each trial that stands for a configuration; the others have none."""
    return {standing.trial.number: rank for rank, standing in enumerate(choose(record).standings, 1)}


def outcome_words(record: StudyRecord, trial: TrialRecord) -> str:
    """A trial's outcome in at most fourteen characters."""
    if trial.outcome is None:
        return "running" if trial.attempts else "not run"
    if trial.is_refused:
        return "refused"
    if trial.bpb is not None and trial.share != 1.0:
        return f"{100 * trial.share:.0f}% run"
    if trial.outcome.kind is Kind.SCORED and not trial.repeats and not record.is_comparable(trial):
        return "other fidelity"
    return "OVER CAP" if trial.outcome.kind is Kind.INFEASIBLE else trial.outcome.kind.value
