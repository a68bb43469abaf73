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
    """How many of ``most`` extra seeds have not been asked."""
    return max(most - sum(trial.role == EXTRA_SEED for trial in record.trials), 0)


def next_round(record: StudyRecord, most: int) -> list[int]:
    """Numbers of the trials that run on one more seed now, where no more than ``most`` extra seeds were to be asked.

    Of a round of which only some were asked, the others. Otherwise none while a trial is unfinished: what it scores
    decides who is in the next one. Each round follows from the trials that were asked before its first.
    """
    extra = [trial for trial in record.trials if trial.role == EXTRA_SEED]
    done = 0
    while done < len(extra):
        near = choose(record, before=extra[done].number).near_ties()[: max(most - done, 0)]
        asked = {trial.replicate_of for trial in extra[done : done + len(near)]}
        if done + len(near) > len(extra):
            return [standing.trial.number for standing in near if standing.trial.number not in asked]
        # A study that was changed since may not find who was in a round; whoever was, ran.
        done += max(len(near), 1)
    if any(trial.unfinished and not trial.is_refused for trial in record.trials):
        return []
    return [standing.trial.number for standing in choose(record).near_ties()[: max(most - done, 0)]]
