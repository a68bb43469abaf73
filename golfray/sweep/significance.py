"""Whether one mean is below another, and how many runs would show it: Student's and Welch's tests, one-sided.

Lower is better. A "margin" is how much lower the first mean has to be, in the unit of the scores.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

_NORMAL = statistics.NormalDist()


@dataclasses.dataclass(frozen=True)
class Sample:
    """Scores of ``n`` runs: their mean, and their sample standard deviation (divisor n - 1), None for one run."""

    n: int
    mean: float
    sd: float | None

    def scaled(self, factor: float) -> Sample:
        """The same scores in another unit."""
        return Sample(self.n, self.mean * factor, None if self.sd is None else self.sd * factor)


@dataclasses.dataclass(frozen=True)
class Noise:
    """A standard deviation over seeds that was pooled within configurations, and its degrees of freedom."""

    sd: float
    df: int

    def scaled(self, factor: float) -> Noise:
        """The same noise in another unit."""
        return Noise(self.sd * factor, self.df)


@dataclasses.dataclass(frozen=True)
class OneSided:
    """A one-sided test: ``p`` is the chance of such a difference, or a larger one, between equals (up to the margin).

    ``t`` is the difference beyond the margin in standard errors, positive where the first mean is the lower one.
    """

    t: float
    df: float
    p: float


def sample_of(scores: Sequence[float]) -> Sample:
    """The sample of some scores; raises ``ValueError`` where there are none."""
    if not scores:
        raise ValueError("a sample needs at least one score")
    return Sample(len(scores), statistics.fmean(scores), statistics.stdev(scores) if len(scores) >= 2 else None)


def pool(samples: Iterable[Sample]) -> Noise | None:
    """Noise pooled within configurations: sqrt(sum((n - 1) sd^2) / sum(n - 1)). None where nothing was repeated.

    Scores that are equal on every seed measure no noise either: None.
    """
    repeated = [(sample.n - 1, sample.sd) for sample in samples if sample.sd is not None]
    df = sum(weight for weight, _ in repeated)
    variance = sum(weight * sd * sd for weight, sd in repeated) / max(df, 1)
    return Noise(math.sqrt(variance), df) if variance > 0 else None


def welch(first: Sample, second: Sample, margin: float = 0.0) -> OneSided | None:
    """Welch's test that ``first`` is below ``second`` by more than ``margin``, each with its own variance.

    t = (second - first - margin) / se with se^2 = v1 + v2 and v = sd^2 / n; degrees of freedom by Satterthwaite:
    se^4 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1)). None where a side has one run, or neither any spread.
    """
    if first.sd is None or second.sd is None:
        return None
    variances = first.sd**2 / first.n, second.sd**2 / second.n
    total = sum(variances)
    if total == 0:
        return None
    df = total**2 / (variances[0] ** 2 / (first.n - 1) + variances[1] ** 2 / (second.n - 1))
    return _test(second.mean - first.mean - margin, math.sqrt(total), df)


def known_noise(first: Sample, second: Sample, noise: Noise, margin: float = 0.0) -> OneSided:
    """The same with the noise of the fidelity in the place of two small samples' own: one run a side is enough.

    t = (second - first - margin) / (sd sqrt(1/n1 + 1/n2)), with the noise's degrees of freedom.
    """
    error = noise.sd * math.sqrt(1 / first.n + 1 / second.n)
    return _test(second.mean - first.mean - margin, error, noise.df)


def paired(differences: Sequence[float]) -> OneSided | None:
    """Student's test that ``differences``, first minus second on one seed each, have a mean below 0.

    t = -mean / (sd / sqrt(n)) with n - 1 degrees of freedom. None for less than two, or where all are equal.
    """
    if len(differences) < 2 or (spread := statistics.stdev(differences)) == 0:
        return None
    n = len(differences)
    return _test(-statistics.fmean(differences), spread / math.sqrt(n), n - 1)


def runs_per_side(effect: float, sd: float, alpha: float, power: float) -> int | None:
    """Runs of each side after which a true difference ``effect`` has p < ``alpha`` with probability ``power``.

    n = 2 (z(1 - alpha) + z(power))^2 sd^2 / effect^2 with normal quantiles z, as for a known sd: with two or three runs
    Welch's own test is weaker than that. None where the effect is not above 0: no number of runs shows it.
    """
    if effect <= 0:
        return None
    return max(1, math.ceil(2 * (_quantiles(alpha, power) * sd / effect) ** 2 - 1e-9))


def runs_against(effect: float, sd: float, alpha: float, power: float, others: int) -> int | None:
    """The same where the other side stays at ``others`` runs: 1/n = (effect / (sd (z + z)))^2 - 1/others.

    None where that is not above 0: then no number of own runs makes up for how few the others are.
    """
    if effect <= 0:
        return None
    left = (effect / (sd * _quantiles(alpha, power))) ** 2 - 1 / others
    return max(1, math.ceil(1 / left - 1e-9)) if left > 0 else None


def student_above(t: float, df: float) -> float:
    """P(T > t) of Student's distribution: I_x(df/2, 1/2) / 2 with x = df / (df + t^2), for t >= 0 (DLMF 8.17).

    Raises ``ValueError`` where ``df`` is not above 0.
    """
    if not df > 0:
        raise ValueError(f"df > 0 must hold, got df={df}")
    square = df + t * t
    tail = 0.5 * _incomplete_beta(df / 2, 0.5, df / square, t * t / square)
    return tail if t >= 0 else 1 - tail


def _test(beyond: float, error: float, df: float) -> OneSided:
    t = beyond / error
    return OneSided(t, df, student_above(t, df))


def _quantiles(alpha: float, power: float) -> float:
    return _NORMAL.inv_cdf(1 - alpha) + _NORMAL.inv_cdf(power)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 <= x <= 1, by its continued fraction (DLMF 8.17.22).

    The fraction converges fast left of its mean; right of it I_x(a, b) = 1 - I_(1-x)(b, a). ``rest`` is 1 - x, which
    the difference would not have to all its digits.
    """
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    front = math.exp(a * math.log(x) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    # 1 + d1/(1 + d2/(1 + ...)), from the back: 200 terms are far more than any df here needs.
    fraction = 1.0
    for index in range(200, 0, -1):
        half, odd = divmod(index, 2)
        if odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        fraction = 1 + term / fraction
    return front / (a * fraction)
