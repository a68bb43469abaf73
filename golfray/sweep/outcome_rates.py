"""How often trials end in what, with the interval in which the true share may lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from golfray.sweep.outcome import Kind
from golfray.sweep.trial_record import TrialRecord

# The normal quantile of 95 %, both sides.
_Z = 1.959963984540054


@dataclasses.dataclass(frozen=True)
class Rate:
    """``count`` of ``trials`` ended so; ``low`` and ``high`` hold the true share with 95 % (Wilson 1927)."""

    count: int
    trials: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        """The share that was seen; None of no trials."""
        return self.count / self.trials if self.trials else None


@dataclasses.dataclass(frozen=True)
class OutcomeRates:
    """Of trials that came to an end of their own: ``trials`` of them, and how many were what.

    ``over_cap`` counts those that were refused because they cannot fit as well. What a driver or a node ended, and
    configurations that the rules forbid, say nothing of a knob and are not counted.
    """

    trials: int
    over_cap: Rate
    diverged: Rate
    crashed: Rate


def wilson(count: int, trials: int) -> Rate:
    """The score interval of a binomial share; of no trials it is everything. Raises ``ValueError`` on other counts."""
    if not 0 <= count <= trials:
        raise ValueError(f"0 <= count <= trials must hold, got count={count}, trials={trials}")
    if trials == 0:
        return Rate(0, 0, 0.0, 1.0)
    share, square = count / trials, _Z**2
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = _Z / (1 + square / trials) * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    # Rounding must not put an end that is 0 or 1 a hair beside it.
    low = 0.0 if count == 0 else max(middle - half, 0.0)
    high = 1.0 if count == trials else min(middle + half, 1.0)
    return Rate(count, trials, low, high)


def outcome_rates(trials: Iterable[TrialRecord]) -> OutcomeRates:
    """The rates of some trials of a study."""
    ends = [trial.outcome.kind for trial in trials if trial.outcome is not None and trial.settings is not None]
    own = [kind for kind in ends if kind not in (Kind.PREEMPTED, Kind.CANCELLED)]
    return OutcomeRates(
        trials=len(own),
        over_cap=wilson(own.count(Kind.INFEASIBLE), len(own)),
        diverged=wilson(own.count(Kind.DIVERGED), len(own)),
        crashed=wilson(own.count(Kind.CRASHED), len(own)),
    )
