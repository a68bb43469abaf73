"""Further seeds for what the noise does not set apart: the last runs of a search, where its budget has some for them.

They come once every point of the search has ended, in rounds: each configuration that is nearly tied with the best runs
once more, the better ones first where not all can, and the next round is for those that are still nearly tied then. Who
is in a round follows from the log alone, so a study that was interrupted goes on with the same runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from golfray.sweep.choosing import choose
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import EXTRA_SEED

# The seeds behind trial 0's are its replicates', at most so many (see golfray.sweep.space_file).
REPLICATES_AT_MOST = 1000


def fresh_seeds(record: StudyRecord) -> Iterator[int]:
    """Seeds that nothing in the study has used, counted up from behind those of trial 0's replicates."""
    used = {trial.seed for trial in record.trials}
    own = record.trials[0].seed if record.trials else 0
    return (seed for seed in itertools.count(own + REPLICATES_AT_MOST) if seed not in used)


def extra_seeds_left(record: StudyRecord, most: int) -> int:
    """How many of ``most`` extra seeds were not asked yet."""
    return max(most - sum(trial.role == EXTRA_SEED for trial in record.trials), 0)


def next_round(record: StudyRecord, most: int) -> list[int]:
    """Numbers of the trials that run on one more seed now, where no more than ``most`` extra seeds were to be asked.

    Empty while a trial is unfinished that is none of the round: what it scores decides who is in it. Of a round of
    which only some were asked, the others; an attempt at any of them says that all were.
    """
    waiting = [trial for trial in record.trials if trial.unfinished and not trial.is_refused]
    if any(trial.role != EXTRA_SEED or trial.attempts for trial in waiting):
        return []
    asked = {trial.replicate_of for trial in waiting}
    due = choose(record).near_ties()[: extra_seeds_left(record, most) + len(waiting)]
    return [standing.trial.number for standing in due if standing.trial.number not in asked]
