"""How long a study will still take, and what it will have cost then: the median, and what nine in ten stay under.

Seconds of whole trials are drawn again and again, with replacement, from those that are known (the bootstrap, Efron
1979), and dealt out to lanes in order, as a study does. What limits the study cuts it off. Known are the study's own
trials that have ended, their lost attempts included; before it starts those of an earlier study of the kind, or an
estimate that the simulator's law spreads (:func:`golfray.sweep.sim.luck.step_factors`).
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Sequence

from golfray.sweep.budget import Allowance, Booked, Price
from golfray.sweep.executor import Holding
from golfray.sweep.records import StudyRecord
from golfray.sweep.retry import DRIVER_LOST
from golfray.sweep.trial_record import AttemptRecord, TrialRecord

_DRAWS = 400

# A study that nothing but USD or GPU-hours limits may have any number of trials; more than this no one waits for.
_MOST_TRIALS = 100_000

_SHARES = (0.5, 0.9)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Seconds from now to the last trial's end, and USD booked by then: median and 90th percentile.

    USD None without a price. ``known``: how many trials it is drawn from.
    """

    p50_s: float
    p90_s: float
    p50_usd: float | None
    p90_usd: float | None
    known: int


@dataclasses.dataclass(frozen=True)
class Ahead:
    """What a study has before it, as seconds from now.

    ``trials``: how many more will be started, infinite where time alone limits them. ``running``: for how long each
    running one has run. ``slots``: how many run at once. ``ready_s``: when the first can start. ``ask_s``: when no more
    are started because minutes are over. ``start_s``: the same because of USD or GPU-hours.
    """

    trials: float
    running: tuple[float, ...]
    slots: int
    ready_s: float = 0.0
    ask_s: float = math.inf
    start_s: float = math.inf


def forecast(
    seconds: Sequence[float], ahead: Ahead, holding: Holding, price: Price | None, spent: Booked, *, seed: int = 0
) -> Forecast | None:
    """Draw the rest of a study from whole trials' ``seconds``; None where none are known, or nothing limits it.

    ``spent``: booked up to now, closing included. The same arguments give the same forecast.
    """
    last = min(ahead.ask_s, ahead.start_s)
    if not seconds or (ahead.trials == math.inf and last == math.inf):
        return None
    draw = random.Random(f"forecast {seed}")
    ends = sorted(_one_end(seconds, ahead, last, draw) for _ in range(_DRAWS))
    p50, p90 = (ends[math.ceil(share * _DRAWS) - 1] for share in _SHARES)
    if price is None or spent.usd is None:
        return Forecast(p50, p90, None, None, known=len(seconds))
    rate = holding.nodes * price.usd_per_hour / 3600
    return Forecast(p50, p90, spent.usd + p50 * rate, spent.usd + p90 * rate, known=len(seconds))


def _one_end(seconds: Sequence[float], ahead: Ahead, last: float, draw: random.Random) -> float:
    """Seconds until one study that may come of it ends."""
    rests = [_rest(seconds, ran, draw) for ran in ahead.running[: ahead.slots]]
    lanes = rests + [ahead.ready_s] * (ahead.slots - len(rests))
    end = max(rests, default=0.0)
    heapq.heapify(lanes)
    for _ in range(int(min(ahead.trials, _MOST_TRIALS))):
        begun = lanes[0]
        if begun >= last:
            break
        ended = begun + draw.choice(seconds)
        heapq.heapreplace(lanes, ended)
        end = max(end, ended)
    return end


def _rest(seconds: Sequence[float], ran: float, draw: random.Random) -> float:
    """Of a running trial: like those that took longer than it has by now; over at once where none did."""
    longer = [whole for whole in seconds if whole > ran]
    return draw.choice(longer) - ran if longer else 0.0


def trial_seconds(record: StudyRecord) -> list[float]:
    """Of each trial that ran and has ended for good: what all its attempts held a lane for, lost ones included."""
    found = []
    for trial in record.trials:
        if trial.outcome is None or trial.unfinished or not (parts := _attempts(trial)):
            continue
        found.append(sum(parts))
    return found


def _attempts(trial: TrialRecord) -> list[float]:
    return [
        _last_known(attempt) - attempt.submitted
        for attempt in trial.attempts
        if attempt.submitted is not None and attempt.ended is not None
    ]


def _last_known(attempt: AttemptRecord) -> float:
    """When it ended; of one whose driver was lost the log knows only when it was last heard of."""
    lost = attempt.outcome is not None and attempt.outcome.error == DRIVER_LOST
    return (attempt.last_sign if lost else attempt.ended) or 0.0


def start_seconds(allowed: Allowance, limit_s: float | None, now: float) -> float:
    """Seconds from ``now`` until no trial that needs ``limit_s`` fits into ``allowed`` any more; infinite without."""
    if not allowed.is_capped or limit_s is None:
        return math.inf
    return max(allowed.search_until - limit_s - now, 0.0)
