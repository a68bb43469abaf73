"""The process against formulas written down again, and what it makes of functions that are known."""

import math

import numpy
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from golfray.sweep.gaussian_process import GaussianProcess, _loss, _squares
from golfray.sweep.gp_sampler import _log_fits, _log_improvement

DRAW = numpy.random.default_rng(7)
POINTS = DRAW.random((18, 3))
POINTS[:, 2] = numpy.floor(POINTS[:, 2] * 3) / 2
CHOICE = numpy.array([False, False, True])
VALUES = 3 + numpy.sin(3 * POINTS[:, 0]) + (POINTS[:, 2] == 0.5) + 0.01 * DRAW.standard_normal(18)


def covariance(left: numpy.ndarray, right: numpy.ndarray, lengths: numpy.ndarray) -> numpy.ndarray:
    """Matern with nu = 5/2, one pair at a time."""
    result = numpy.empty((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            apart = numpy.array([float(a != b) if c else a - b for a, b, c in zip(one, other, CHOICE, strict=True)])
            r = math.sqrt(((apart / lengths) ** 2).sum())
            result[i, j] = (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)
    return result


def test_it_foresees_what_the_formulas_say() -> None:
    process = GaussianProcess.fit(POINTS, VALUES, CHOICE)
    new = DRAW.random((4, 3))
    new[:, 2] = [0, 0.5, 1, 0.5]
    inverse = numpy.linalg.inv(covariance(POINTS, POINTS, process.lengths) + process.noise * numpy.eye(18))
    across = covariance(new, POINTS, process.lengths)
    mean, sd = VALUES.mean(), VALUES.std()
    expected = mean + sd * across @ inverse @ ((VALUES - mean) / sd)
    spread = sd * numpy.sqrt(1 - numpy.diagonal(across @ inverse @ across.T))
    found = process.predict(new)
    numpy.testing.assert_allclose(found[0], expected, rtol=1e-9)
    numpy.testing.assert_allclose(found[1], spread, rtol=1e-6)


def test_the_gradient_is_that_of_the_loss() -> None:
    where = numpy.array([-0.5, 0.3, 0.8, -2.5])
    squares, standard = _squares(POINTS, POINTS, CHOICE), (VALUES - VALUES.mean()) / VALUES.std()
    gradient = _loss(where, squares, standard, 1.0)[1]
    for index, step in enumerate(1e-6 * numpy.eye(4)):
        up, down = (_loss(where + sign * step, squares, standard, 1.0)[0] for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-6)


def test_it_finds_which_dimensions_matter_and_how_noisy_the_looks_are() -> None:
    draw = numpy.random.default_rng(3)
    points = draw.random((120, 3))
    plain = numpy.zeros(3, dtype=bool)
    values = numpy.sin(5 * points[:, 0])
    quiet = GaussianProcess.fit(points, values + 0.02 * draw.standard_normal(120), plain)
    loud = GaussianProcess.fit(points, values + 0.4 * draw.standard_normal(120), plain)
    assert quiet.lengths[0] < quiet.lengths[1:].min() / 5
    assert math.sqrt(quiet.noise) * quiet.scale == pytest.approx(0.02, rel=0.25)
    assert math.sqrt(loud.noise) * loud.scale == pytest.approx(0.4, rel=0.25)


def test_after_believing_nothing_is_left_to_learn_there_and_no_mean_has_moved() -> None:
    process = GaussianProcess.fit(POINTS, VALUES, CHOICE)
    far = numpy.array([[0.99, 0.01, 1.0]])
    near = far - [[0.01, 0, 0]]
    after = process.believing(far)
    assert after.predict(far)[1][0] < process.predict(far)[1][0]
    assert after.predict(near)[1][0] < process.predict(near)[1][0]
    numpy.testing.assert_allclose(after.predict(POINTS)[0], process.predict(POINTS)[0], rtol=1e-9)
    assert process.believing(numpy.empty((0, 3))) is process


@pytest.mark.parametrize("sds", [2.0, 0.0, -0.9, -1.1, -5.0])
def test_the_improvement_and_the_probability_are_those_of_a_normal_value(sds: float) -> None:
    process = GaussianProcess.fit(POINTS, VALUES, CHOICE)
    place = numpy.array([[0.5, 0.5, 0.0]])
    (mean,), (sd,) = process.predict(place)
    best = mean + sds * sd
    gain = quad(lambda y: (best - y) * norm.pdf(y, mean, sd), mean - 12 * sd, best, epsabs=0, epsrel=1e-9)[0]
    assert _log_improvement(process, best)(place)[0] == pytest.approx(math.log(gain), abs=1e-6)
    moved = GaussianProcess.fit(POINTS, VALUES - best, CHOICE)
    assert _log_fits(moved)(place)[0] == pytest.approx(norm.logcdf(sds), abs=1e-6)


def test_a_value_that_is_always_the_same_is_foreseen_everywhere() -> None:
    process = GaussianProcess.fit(POINTS, numpy.full(18, 2.5), CHOICE)
    numpy.testing.assert_allclose(process.predict(DRAW.random((5, 3)))[0], 2.5)
