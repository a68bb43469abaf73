"""What a study will do, said before it does it: trials, lanes, time, disk, sizes, passes over the data. Starts nothing.

Everything here is computed from a space and from :class:`Costs`; nothing is measured and nothing is written.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from golfray.config.errors import ConfigError
from golfray.core.settings import RunSettings
from golfray.sweep.budget import (
    CLOSE_S,
    Booked,
    BudgetTooSmall,
    Price,
    StudyBudget,
    allowance,
    check_first,
    hard_limit_s,
)
from golfray.sweep.costs import LANES_S, Costs
from golfray.sweep.disk_room import StudyDisk
from golfray.sweep.executor import Holding
from golfray.sweep.fit import fit_of, is_too_large
from golfray.sweep.forecast import Ahead, Forecast, forecast, start_seconds, trial_seconds
from golfray.sweep.points import Point
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import STARTUP_TRIALS, StudySampler
from golfray.sweep.sim.luck import step_factors
from golfray.sweep.size import expected_bytes_model
from golfray.sweep.size_calibration import SizeCalibration, size_runs
from golfray.sweep.space import Space
from golfray.sweep.trial_record import EXTRA_SEED, SAMPLER
from golfray.sweep.work_left import work_left

# Points whose size is foreseen. TPE has a model only after as many trials as this, so all of them can be known.
POINTS_SHOWN = STARTUP_TRIALS

# How many trials stand for all where none has run yet.
_SPREAD_TRIALS = 200


@dataclasses.dataclass(frozen=True)
class CorpusFacts:
    """What a plan needs to know of a corpus.

    ``unseen``: ids of tokens that do not occur in its training text. ``built``: whether it is on disk already.
    """

    name: str
    train_tokens: int
    val_tokens: int
    unseen: tuple[int, ...]
    built: bool


@dataclasses.dataclass(frozen=True)
class ForeseenPoint:
    """One of the first points, and the size it is expected to have.

    ``params`` are the knobs' values by path. ``bytes_total`` is code and model, ``margin`` what that leaves under the
    cap, ``error`` the bytes by which both are usually missed, ``fit_probability`` the chance that it fits; None
    where a search finds an export that fits, and, with the reason in ``refused``, where the configuration does not
    allow the point. ``too_large``: whether the study, if it foresees no more than this plan, refuses the point for its
    size.
    """

    number: int
    role: str
    params: dict[str, Any]
    bytes_total: int | None = None
    margin: int | None = None
    error: int | None = None
    fit_probability: float | None = None
    refused: str | None = None
    too_large: bool = False


@dataclasses.dataclass(frozen=True)
class TimePlan:
    """Seconds of the whole command and its parts: lanes work side by side in ``rounds``, a trial a lane and round."""

    rounds: int
    costs: Costs
    limited: bool

    @property
    def trials_s(self) -> float:
        """All rounds; a lane's first trial takes longer."""
        return self.rounds * self.costs.trial_s + self.costs.first_extra_s

    @property
    def total_s(self) -> float:
        """From the command to its end."""
        return self.costs.open_s + self.costs.lanes_s + self.trials_s + self.costs.close_s


@dataclasses.dataclass(frozen=True)
class StudyPlan:
    """A study before it starts.

    ``roles`` are those of all trials in the order in which they are asked. ``lanes`` is how many run at once.
    ``passes`` is how often a trial reads the training text. ``forecast`` is from the command to the last trial's end.
    """

    study: str
    preset: str
    scale: str
    workers: int
    cap_bytes: int
    bytes_code: int
    budget: StudyBudget
    roles: tuple[str, ...]
    lanes: int
    time: TimePlan
    disk: StudyDisk
    points: tuple[ForeseenPoint, ...]
    corpus: CorpusFacts
    passes: float
    price: Price | None
    forecast: Forecast | None


def check_budget(space: Space) -> None:
    """Raise :class:`BudgetTooSmall` where the minutes do not even hold the start and one trial's own training.

    Where trials end by steps alone nothing is known of their length, and nothing is refused.
    """
    seconds = space.base.config.stop.seconds
    minutes = space.budget.minutes
    if minutes is None or seconds is None or 60 * minutes >= LANES_S + seconds:
        return
    least = math.ceil(10 * (LANES_S + seconds) / 60) / 10
    raise BudgetTooSmall(
        f"{space.source}: budget.minutes is {minutes:g}, which is {60 * minutes:g} s, but starting takes "
        f"about {LANES_S:g} s and one trial trains for {seconds:g} s (stop.seconds); give at least {least:g} minutes, "
        "or lower stop.seconds"
    )


def plan_study(
    space: Space,
    corpus: CorpusFacts,
    costs: Costs,
    disk: StudyDisk,
    *,
    lanes: int,
    bytes_code: int,
    holding: Holding,
    price: Price | None = None,
    earlier: StudyRecord | None = None,
) -> StudyPlan:
    """The plan of a new study of ``space`` in so many ``lanes`` on ``holding``. Raises :class:`BudgetTooSmall`.

    ``earlier``: a study of the same kind, by whose sizes the expected ones are corrected, and whose trials say how much
    times differ. ``price`` is a node's.
    """
    check_budget(space)
    start_s = _start_s(space, costs, lanes, holding, price)
    config = space.base.config
    calibration = _calibration(space, corpus, earlier)
    roles, rounds, limited = _trials(space, costs, lanes, start_s)
    return StudyPlan(
        study=space.name,
        preset=config.preset,
        scale=config.scale,
        workers=config.workers,
        cap_bytes=config.cap_bytes,
        bytes_code=bytes_code,
        budget=space.budget,
        roles=roles,
        lanes=lanes,
        time=TimePlan(rounds, costs, limited),
        disk=disk,
        points=tuple(_foreseen(space, corpus, costs.steps, roles[:POINTS_SHOWN], bytes_code, calibration)),
        corpus=corpus,
        passes=costs.steps * config.batch.tokens / corpus.train_tokens,
        price=price,
        forecast=_forecast(space, costs, lanes, holding, price, earlier, start_s),
    )


def _start_s(space: Space, costs: Costs, lanes: int, holding: Holding, price: Price | None) -> float:
    """Seconds from the first record until the budget's USD or GPU-hours hold no trial any more.

    Raises :class:`BudgetTooSmall` where they hold none at all.
    """
    settings = dataclasses.asdict(space.base.config.to_run_settings(0))
    nothing = Booked(0.0, 0.0, None)
    allowed = allowance(
        space.budget,
        space.limits,
        settings,
        nothing,
        holding,
        price,
        held_since=-costs.open_s,
        slots=lanes,
        confirmed=0,
    )
    check_first(allowed, settings, 0.0, confirms=False)
    return start_seconds(allowed, hard_limit_s(settings, space.limits), 0.0)


def _forecast(
    space: Space,
    costs: Costs,
    lanes: int,
    holding: Holding,
    price: Price | None,
    earlier: StudyRecord | None,
    start_s: float,
) -> Forecast | None:
    left = work_left(space, StudyRecord())
    # Stopped trials and short ones say nothing of a study whose trials run to their end.
    known = [] if earlier is None or earlier.stopping != space.stopping else trial_seconds(earlier)
    ahead = Ahead(
        trials=math.inf if left.asks is None else left.asks,
        running=(),
        slots=lanes,
        ready_s=costs.open_s + costs.lanes_s + costs.first_extra_s,
        ask_s=costs.open_s + left.seconds,
        start_s=costs.open_s + start_s,
    )
    usd = None if price is None else CLOSE_S * holding.nodes * price.usd_per_hour / 3600
    spent = Booked(CLOSE_S * holding.nodes, CLOSE_S * holding.gpus, usd)
    return forecast(known or _spread(space, costs), ahead, holding, price, spent)


def _spread(space: Space, costs: Costs) -> list[float]:
    """Seconds of trials that differ as step times do; a run that ends by the clock trains for as long on all."""
    fixed = costs.phases["train"] if space.base.config.stop.seconds is not None else 0.0
    return [fixed + (costs.trial_s - fixed) * factor for factor in step_factors(_SPREAD_TRIALS)]


def _trials(space: Space, costs: Costs, lanes: int, start_s: float) -> tuple[tuple[str, ...], int, bool]:
    """Roles of all trials, rounds, and whether time ends them before their number does.

    All trials take equally long, so every round starts at once. It is asked when the round before has ended, if the
    budget's minutes, which run from the study's first record, are not over then, nor the ``start_s`` of its money.
    """
    left = work_left(space, StudyRecord())
    asked = math.inf if left.asks is None else left.asks
    rounds = math.inf if asked == math.inf else math.ceil(asked / lanes)
    in_time = math.inf
    last_s = min(left.seconds, start_s)
    if last_s < math.inf:
        in_time = max(math.ceil((last_s - costs.lanes_s - costs.first_extra_s) / costs.trial_s), 1)
    limited = in_time < rounds
    rounds = int(min(rounds, in_time))
    count = int(min(rounds * lanes, asked))
    planned = [point.role for point in left.planned][:count]
    searched = count if left.suggestions is None else min(count, len(left.planned) + left.suggestions)
    suggested, extra = [SAMPLER] * (searched - len(planned)), [EXTRA_SEED] * (count - searched)
    return (*planned, *suggested, *extra), rounds, limited


def _foreseen(
    space: Space,
    corpus: CorpusFacts,
    steps: int,
    roles: tuple[str, ...],
    bytes_code: int,
    calibration: SizeCalibration,
) -> Iterator[ForeseenPoint]:
    """The first points as the study will ask them: what is drawn before there is a model depends on no outcome."""
    planned = list(work_left(space, StudyRecord()).planned)
    # The cap and the worst score are only needed to tell it of outcomes, of which there are none.
    sampler = StudySampler(space.knobs, kind=space.sampler, seed=space.seed, cap_bytes=1, uniform_bpb=1.0)
    for number, role in enumerate(roles):
        if number < len(planned):
            point = planned[number]
            if point.told:
                sampler.place(number, point.params)
        else:
            params = sampler.suggest(number)
            try:
                point = Point(role, space.at(params), params, told=True)
            except ConfigError as error:
                yield ForeseenPoint(number, role, space.overrides(params), refused=str(error))
                continue
        settings = point.resolved.config.to_run_settings(bytes_code)
        knobs = {knob.path: point.resolved.config.value(knob.path) for knob in space.knobs}
        if settings.export.search is not None:
            yield ForeseenPoint(number, point.role, knobs)
            continue
        estimate = expected_bytes_model(settings, _own_steps(settings, steps), corpus.unseen)
        fit = fit_of(calibration.corrected(settings.export, estimate), bytes_code, settings.cap_bytes)
        yield ForeseenPoint(
            number,
            point.role,
            knobs,
            bytes_total=fit.bytes_total,
            margin=fit.margin,
            error=round(fit.sd),
            fit_probability=fit.probability,
            too_large=is_too_large(point.role, fit, space.fit_probability),
        )


def _calibration(space: Space, corpus: CorpusFacts, earlier: StudyRecord | None) -> SizeCalibration:
    if earlier is None:
        return SizeCalibration()
    stop = dataclasses.asdict(space.base.config.to_run_settings(0).stop)
    return SizeCalibration(
        size_runs(earlier, stop, lambda settings, steps: expected_bytes_model(settings, steps, corpus.unseen))
    )


def _own_steps(settings: RunSettings, steps: int) -> int:
    return steps if settings.stop.steps is None else min(steps, settings.stop.steps)
