"""Confirmations: trials of a study once more, on seeds that its search never used.

They are trials of the same study, with a role of their own and run by the same driver, but no results of its search:
the sampler does not hear of them, none of them can be best, and the budget does not count them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from golfray.config.errors import ConfigError
from golfray.config.sections import LARGEST_SEED
from golfray.core.settings import settings_from_dict
from golfray.sweep.extra_seeds import fresh_seeds
from golfray.sweep.journal import Journal
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import CONFIRM, TrialRecord

_NOT_TOLD = "a confirmation measures a trial again: the sampler hears of a point on one seed only"


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """Run the trial number ``of`` again on ``seed``."""

    of: int
    seed: int


def plan_confirmations(
    record: StudyRecord, trials: Sequence[TrialRecord], seeds: int, *, paired: bool
) -> list[Confirmation]:
    """``seeds`` confirmations of each of ``trials``, the first of each before any second.

    Seeds are counted up from behind those that trial 0 can have replicates on, passing over every seed that the study
    has used: no score that chose a trial was made on one of them. ``paired``: all trials get the same seeds, so that
    their differences can be taken seed by seed. Raises ``ConfigError`` where there are not so many seeds, and for a
    trial that is another one's repetition or has no score.
    """
    for trial in trials:
        _refuse_unconfirmable(trial)
    fresh = fresh_seeds(record)
    plan = []
    for _ in range(seeds):
        shared = next(fresh)
        for index, trial in enumerate(trials):
            plan.append(Confirmation(trial.number, shared if paired or index == 0 else next(fresh)))
    last = max((confirmation.seed for confirmation in plan), default=0)
    if last > LARGEST_SEED:
        raise ConfigError(f"no {seeds} fresh seeds are left: the last one would be {last}, above {LARGEST_SEED}")
    return plan


def ask_confirmations(journal: Journal, plan: Sequence[Confirmation]) -> None:
    """Log every confirmation as asked; whoever drives the study then finds them unfinished."""
    for confirmation in plan:
        repeat(journal, journal.record.trials[confirmation.of], confirmation.seed, CONFIRM, _NOT_TOLD)


def repeat(journal: Journal, root: TrialRecord, seed: int, role: str, why_not_told: str) -> TrialRecord:
    """Log that a trial with a score is asked for once more, on another seed and under the same size."""
    assert root.settings is not None, "a trial with a score has settings"
    # What an older golfray did not know of gets the value that the run would give it.
    settings = dataclasses.asdict(settings_from_dict(root.settings))
    settings["runtime"]["seed"] = seed
    number = len(journal.record.trials)
    journal.write(
        "trial_asked",
        trial=number,
        role=role,
        params=root.params,
        told=False,
        told_reason=why_not_told,
        settings=settings,
        refused=None,
        foreseen=root.foreseen,
        too_large=False,
        seed=seed,
        replicate_of=root.number,
        share=root.share,
        promotes=None,
    )
    return journal.record.trials[number]


def unfinished_confirmations(record: StudyRecord) -> list[int]:
    """Numbers of the confirmations that still need an attempt to end."""
    return [trial.number for trial in record.trials if trial.role == CONFIRM and trial.unfinished]


def _refuse_unconfirmable(trial: TrialRecord) -> None:
    name = f"t{trial.number:03d}"
    if trial.replicate_of is not None:
        root = f"t{trial.replicate_of:03d}"
        raise ConfigError(f"is {root} on another seed; confirm {root}", file=name)
    if trial.share != 1.0:
        raise ConfigError(
            f"is a short run, of {100 * trial.share:.0f}% of the length; confirm a trial that was whole", file=name
        )
    if trial.bpb is None:
        ended = "has not ended" if trial.outcome is None else f"ended as {trial.outcome.kind}"
        raise ConfigError(f"{ended}, so there is no score to confirm", file=name)
