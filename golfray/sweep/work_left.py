"""What a study has still to do: what was asked and needs an attempt, and what its budget lets it ask.

Read from the space and the log alone, so a study that was interrupted goes on with the same trials.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Hashable, Mapping
from typing import Any

from golfray.sweep.confirmation import unfinished_confirmations
from golfray.sweep.extra_seeds import extra_seeds_left, next_round
from golfray.sweep.points import Point, planned_points
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space
from golfray.sweep.trial_record import FIRST_POINT, REPLICATE, SAMPLER, setting_at, setting_paths

# Not part of the point that a configuration is: where the data lie, how large the packed script is then, and what
# no configuration has.
_BESIDE_THE_POINT = ("data", "bytes_code", "clock_trace")


@dataclasses.dataclass(frozen=True)
class WorkLeft:
    """What a study has still to do.

    ``unfinished``: numbers of trials that were asked and need an attempt. ``planned``: points that were not asked yet.
    ``suggestions``: how many more the sampler may be asked for, None where only time limits them. ``extra``: how many
    extra seeds may follow; how many will is known once the search has ended. ``seconds``: what
    is left of the budget's minutes, infinite where it has none; no new trial is asked once they are over. ``complete``:
    whether the study ended because its budget, as it was then, was spent. ``paid``: whether its GPU-hours and USD hold
    one more attempt.
    """

    unfinished: tuple[int, ...]
    planned: tuple[Point, ...]
    suggestions: int | None
    seconds: float
    complete: bool
    paid: bool = True
    extra: int = 0

    @property
    def nothing(self) -> bool:
        """Whether there is no trial to run any more, and the log says that the study ended with that."""
        asks = self.seconds > 0 and self.asks != 0
        return self.complete and not (self.paid and (self.unfinished or asks))

    @property
    def asks(self) -> int | None:
        """How many trials may still be asked, None where only time limits them."""
        return None if self.suggestions is None else len(self.planned) + self.suggestions + self.extra

    @property
    def most_lanes(self) -> int | None:
        """How many lanes can be of use: one for every trial that will run, and one at least; None: as many as fit."""
        if self.suggestions is None:
            return None
        return max(1, len(self.unfinished) + len(self.planned) + self.suggestions, self.extra)


def work_left(space: Space, record: StudyRecord) -> WorkLeft:
    """What the budget of ``space`` leaves after what ``record`` says was asked; all of it for an empty record."""
    spare = None if space.budget.trials is None else max(space.budget.trials - asked_trials(record), 0)
    planned, searched = [], 0
    for point in _not_asked(space, record):
        if point.role == REPLICATE:
            planned.append(point)
        elif spare is None or searched < spare:
            planned.append(point)
            searched += 1
    again = record.blamed_on_machine
    most = space.budget.extra_seeds or 0
    extra = extra_seeds_left(record, most)
    if record.complete and spare == searched == 0:
        extra = len(next_round(record, most))
    return WorkLeft(
        unfinished=tuple(trial.number for trial in record.trials if trial.unfinished or trial.number in again),
        planned=tuple(planned),
        suggestions=None if spare is None else spare - searched,
        seconds=math.inf if space.budget.minutes is None else 60 * space.budget.minutes - record.driven_seconds,
        complete=record.complete,
        extra=extra,
    )


def confirming_left(record: StudyRecord, coming: int = 0) -> WorkLeft:
    """The same while only confirmations are run: the unfinished ones, and ``coming`` more that will be asked."""
    count = len(record.trials)
    unfinished = (*unfinished_confirmations(record), *range(count, count + coming))
    return WorkLeft(unfinished, planned=(), suggestions=0, seconds=math.inf, complete=record.complete)


def asked_trials(record: StudyRecord) -> int:
    """Trials that count against the budget: all that search something and take time.

    Replicates, extra seeds and confirmations are no points of the search; what was refused for its size took no second.
    """
    return sum(trial.searches and not trial.too_large for trial in record.trials)


def _not_asked(space: Space, record: StudyRecord) -> list[Point]:
    """The planned points that no trial of the record is, each trial standing for one."""
    asked = collections.Counter(
        _identity(trial.role, trial.seed, trial.settings) for trial in record.trials if trial.role != SAMPLER
    )
    points = planned_points(space)
    if not asked:
        return points
    left = []
    for point in points:
        config = point.resolved.config
        settings = dataclasses.asdict(config.to_run_settings(0)) if point.role == FIRST_POINT else None
        own = _identity(point.role, config.runtime.seed, settings)
        if asked[own] == 0:
            left.append(point)
        else:
            asked[own] -= 1
    return left


def _identity(role: str, seed: int, settings: Mapping[str, Any] | None) -> Hashable:
    """What a planned point and its trial have in common, and no other of them has."""
    if role == REPLICATE:
        return role, seed
    if role == FIRST_POINT and settings is not None:
        paths = setting_paths(settings)
        return role, frozenset((path, setting_at(settings, path)) for path in paths if _is_of_point(path))
    # There is one preset in a study, and one preset at 8 bits.
    return role


def _is_of_point(path: str) -> bool:
    return path.partition(".")[0] not in _BESIDE_THE_POINT
