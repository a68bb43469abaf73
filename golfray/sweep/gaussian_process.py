"""What is known of a smooth function after noisy looks at it: a Gaussian process with a length for each dimension.

The covariance of two points is that of Matern with nu = 5/2 (Rasmussen and Williams, Gaussian Processes for Machine
Learning, 2006, eq. 4.17), at distance r:

    k = (1 + s + s^2 / 3) exp(-s)        s = 5^1/2 r        r^2 = sum over dimensions of (x - x')^2 / length^2

In a dimension that is a choice, (x - x')^2 is 1 where the two differ. Lengths and noise are where their posterior is
highest. The more dimensions, the longer lengths are before anything is seen, so that few points say something of all of
the space (Hvarfner et al., Vanilla Bayesian Optimization Performs Great in High Dimensions, 2024).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy

Array = numpy.ndarray[Any, numpy.dtype[Any]]
Mask = numpy.ndarray[Any, numpy.dtype[numpy.bool_]]

_ROOT_5 = math.sqrt(5)

# Log-normal priors, as mean and standard deviation of the logarithm; that of a length grows with the dimensions.
_LENGTH_PRIOR = -0.5 * math.log(2), 1.0
_NOISE_PRIOR = -6.0, 1.0

# In lengths of the prior: where the search for the most likely lengths begins. It ends at a valley of the loss, of
# which there are several, as where a dimension may matter much or not at all.
_STARTS = 1.0, 0.2

# In the logarithm: a length beyond these is none or endless, and with less noise close points are singular.
_LENGTH_BOUNDS = -4.0, 8.0
_NOISE_BOUNDS = math.log(1e-4), 0.0

_MOST_STEPS = 60


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """One that was fitted to ``values``, shape (n,), seen at ``points``, shape (n, d), within the unit cube.

    ``choice``, shape (d,): which dimensions are choices. ``lengths``: shape (d,). ``noise``: variance of one look, in
    units of ``scale`` squared. ``mean`` and ``scale``: those of the function before anything was seen.
    """

    points: Array
    values: Array
    choice: Mask
    lengths: Array
    noise: float
    mean: float
    scale: float
    _half_inverse: Array
    _weights: Array

    @classmethod
    def fit(cls, points: Array, values: Array, choice: Mask) -> GaussianProcess:
        """The most likely one; n >= 1."""
        # scipy.optimize takes a fifth of a second to import, and a study of random points does without.
        from scipy.optimize import minimize

        squares = _squares(points, points, choice)
        mean, scale = float(values.mean()), float(values.std()) or 1.0
        dimensions = points.shape[1]
        prior = _LENGTH_PRIOR[0] + 0.5 * math.log(dimensions)
        results = [
            minimize(
                _loss,
                numpy.append(numpy.full(dimensions, prior + math.log(start)), _NOISE_PRIOR[0]),
                (squares, (values - mean) / scale, prior),
                jac=True,
                method="L-BFGS-B",
                bounds=[_LENGTH_BOUNDS] * dimensions + [_NOISE_BOUNDS],
                options={"maxiter": _MOST_STEPS},
            )
            for start in _STARTS
        ]
        found = min(results, key=lambda result: result.fun).x
        return cls._of(points, values, choice, numpy.exp(found[:-1]), math.exp(found[-1]), mean, scale)

    @classmethod
    def _of(
        cls, points: Array, values: Array, choice: Mask, lengths: Array, noise: float, mean: float, scale: float
    ) -> GaussianProcess:
        covariance, _ = _matern(_squares(points, points, choice) @ lengths**-2)
        half = _half_inverse(covariance, noise)[1]
        weights = half.T @ (half @ ((values - mean) / scale))
        return cls(points, values, choice, lengths, noise, mean, scale, half, weights)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the function itself, without noise, at points of shape (m, d)."""
        covariance, _ = _matern(_squares(points, self.points, self.choice) @ self.lengths**-2)
        variance = 1 - ((covariance @ self._half_inverse.T) ** 2).sum(axis=1)
        sd = self.scale * numpy.sqrt(numpy.maximum(variance, 1e-12))
        return self.mean + self.scale * (covariance @ self._weights), sd

    def believing(self, points: Array) -> GaussianProcess:
        """The same after looks at these points, shape (m, d), at which it saw what it foresees there."""
        if not len(points):
            return self
        values = numpy.concatenate([self.values, self.predict(points)[0]])
        known = numpy.concatenate([self.points, points])
        return self._of(known, values, self.choice, self.lengths, self.noise, self.mean, self.scale)


def _squares(left: Array, right: Array, choice: Mask) -> Array:
    """Squared distances in each dimension, shape (left, right, d)."""
    squares = (left[:, None, :] - right[None, :, :]) ** 2
    squares[..., choice] = squares[..., choice] > 0
    return squares


def _matern(squared: Array) -> tuple[Array, Array]:
    """Covariance at these squared distances, and its derivative by them."""
    s = _ROOT_5 * numpy.sqrt(squared)
    decay = numpy.exp(-s)
    return (1 + s + s * s / 3) * decay, -5 / 6 * (1 + s) * decay


def _half_inverse(covariance: Array, noise: float) -> tuple[Array, Array]:
    """The Cholesky factor of the covariance of looks, and the inverse of that factor."""
    factor = numpy.linalg.cholesky(covariance + noise * numpy.eye(len(covariance)))
    return factor, numpy.linalg.inv(factor)


def _loss(where: Array, squares: Array, standard: Array, prior: float) -> tuple[float, Array]:
    """Minus the log posterior of log lengths and log noise but for a constant, and its gradient (eq. 5.8 and 5.9)."""
    shrink, noise = numpy.exp(-2 * where[:-1]), math.exp(where[-1])
    covariance, slope = _matern(squares @ shrink)
    factor, half = _half_inverse(covariance, noise)
    inverse = half.T @ half
    weights = inverse @ standard
    value = 0.5 * float(standard @ weights) + float(numpy.log(numpy.diagonal(factor)).sum())
    outer = inverse - numpy.outer(weights, weights)
    by_length = -shrink * numpy.tensordot(outer * slope, squares, axes=2)
    by_noise = 0.5 * noise * numpy.trace(outer)
    away = numpy.append((where[:-1] - prior) / _LENGTH_PRIOR[1], (where[-1] - _NOISE_PRIOR[0]) / _NOISE_PRIOR[1])
    widths = numpy.append(numpy.full(len(shrink), _LENGTH_PRIOR[1]), _NOISE_PRIOR[1])
    return value + 0.5 * float(away @ away), numpy.append(by_length, by_noise) + away / widths
