"""Scores as a sum of effects, one a part of each knob, with what they are known to: random effects by REML.

    y = X c + Z b + e,    b ~ N(0, t^2),    e ~ N(0, s^2)

X holds the mean and covariates, Z one column a part of a knob with a 1 where a trial lies in it. The ratio t^2 / s^2 is
the one of a grid under which the data are most likely (restricted likelihood, s profiled out: Patterson and Thompson
1971); b and its covariance are the posterior ones given that ratio, c the generalised least squares estimate (Henderson
1975). Few trials leave b at 0 with the uncertainty t, so nothing is made of noise; effects are estimated beside each
other, so that a sampler which moves several knobs at once does not credit one with another's work.
"""

from __future__ import annotations

import dataclasses
import math

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]

# t^2 / s^2: from "no effect" to effects 100 times as large as what a run scatters.
_RATIOS = (0.0, *(10.0 ** (step / 10) for step in range(-40, 41)))


@dataclasses.dataclass(frozen=True)
class AdditiveFit:
    """``effects`` (p,) and their covariance (p, p); ``fixed`` (q,) and its covariance (q, q); units of y.

    ``residual_sd`` is s, ``effect_sd`` t; both in units of y.
    """

    effects: Array
    covariance: Array
    fixed: Array
    fixed_covariance: Array
    residual_sd: float
    effect_sd: float

    def contrast(self, weights: Array) -> tuple[float, float]:
        """``weights @ effects`` and its standard deviation."""
        mean = float(weights @ self.effects)
        return mean, math.sqrt(max(float(weights @ self.covariance @ weights), 0.0))


def fit_additive(scores: Array, parts: Array, fixed: Array, ratio: float | None = None) -> AdditiveFit:
    """Fit ``scores`` (n,) by ``parts`` (n, p) as random and ``fixed`` (n, q) as fixed effects.

    ``ratio`` is t^2 / s^2; None: the most likely one. Raises ``ValueError`` where ``fixed`` has not full rank or leaves
    no degree of freedom: n > q must hold.
    """
    count, width = fixed.shape
    if count <= width or numpy.linalg.matrix_rank(fixed) < width:
        raise ValueError(f"fixed effects of full rank and fewer than trials are needed, got {width} of {count} trials")
    basis, _ = numpy.linalg.qr(fixed)

    def without_fixed(values: Array) -> Array:
        return numpy.asarray(values - basis @ (basis.T @ values))

    rest, columns = without_fixed(scores), without_fixed(parts)
    left, singular, right = numpy.linalg.svd(columns, full_matrices=False)
    squares = singular**2
    along = left.T @ rest
    beside = max(float(rest @ rest - along @ along), 0.0)
    freedom = count - width

    def variance(chosen: float) -> float:
        return (float(numpy.sum(along**2 / (1 + chosen * squares))) + beside) / freedom

    def log_likelihood(chosen: float) -> float:
        # Equal scores have no variance, and then every ratio is as good as none.
        spread = max(variance(chosen), 1e-300)
        return -0.5 * (freedom * float(numpy.log(spread)) + float(numpy.sum(numpy.log1p(chosen * squares))))

    best = max(_RATIOS, key=log_likelihood) if ratio is None else ratio
    scatter = variance(best)
    effects = right.T @ (best * singular * along / (1 + best * squares))
    # best * I, less what the data say along each right singular vector.
    known = best - best / (1 + best * squares)
    covariance = scatter * (best * numpy.eye(parts.shape[1]) - right.T @ (known[:, None] * right))
    inverse = _Inverse(parts, best)
    gram = numpy.linalg.inv(fixed.T @ inverse(fixed))
    return AdditiveFit(
        effects=effects,
        covariance=covariance,
        fixed=gram @ (fixed.T @ inverse(scores)),
        fixed_covariance=numpy.asarray(scatter * gram),
        residual_sd=math.sqrt(scatter),
        effect_sd=math.sqrt(best * scatter),
    )


class _Inverse:
    """(I + ratio Z Z^T)^-1 times something, by a system of as many equations as Z has columns (Woodbury)."""

    def __init__(self, parts: Array, ratio: float) -> None:
        self._parts, self._ratio = parts, ratio
        self._system = numpy.eye(parts.shape[1]) + ratio * (parts.T @ parts)

    def __call__(self, values: Array) -> Array:
        inner = numpy.linalg.solve(self._system, self._parts.T @ values)
        return numpy.asarray(values - self._ratio * (self._parts @ inner))
