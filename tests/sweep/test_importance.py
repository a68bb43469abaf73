"""Importances are Optuna's, and held against shuffled scores."""

import numpy
import optuna
import pytest

from golfray.sweep.importance import LEAST_TRIALS, knob_importances
from golfray.sweep.knobs import Choice, Condition, FloatRange, Knob

RATE = Knob("a.rate", FloatRange(0.01, 1.0, log=True))
SHARE = Knob("a.share", FloatRange(0.0, 1.0))
DECAY = Knob("a.decay", FloatRange(0.01, 0.1), or_zero=True)


@pytest.fixture(scope="module")
def points() -> list[dict]:
    generator = numpy.random.default_rng(2)
    return [
        {
            "a.rate": float(10 ** -generator.uniform(0, 2)),
            "a.share": float(generator.uniform()),
            "a.decay": float(generator.uniform(0.01, 0.1)),
            "a.decay > 0": bool(generator.integers(2)),
        }
        for _ in range(24)
    ]


KNOBS = (RATE, SHARE, DECAY)


@pytest.fixture(scope="module")
def by_rate(points):
    return knob_importances(KNOBS, points, [numpy.log(point["a.rate"]) for point in points])


def test_the_knob_that_decides_is_told_from_those_that_do_not(by_rate) -> None:
    assert max(by_rate.knobs, key=lambda path: by_rate.knobs[path].share) == "a.rate"
    assert by_rate.knobs["a.rate"].chance == pytest.approx(1 / 100), "no shuffle of 99 gives as much"
    assert sum(found.share for found in by_rate.knobs.values()) == pytest.approx(1.0)
    assert (by_rate.best, by_rate.trials, by_rate.shuffles) == (5, 24, 99)


def test_shares_are_those_of_optuna(by_rate, points) -> None:
    """The evaluator itself, for the best five of 24, a knob of two parameters having both."""
    study = optuna.create_study()
    distributions = {
        "a.rate": optuna.distributions.FloatDistribution(0.01, 1.0, log=True),
        "a.share": optuna.distributions.FloatDistribution(0.0, 1.0),
        "a.decay": optuna.distributions.FloatDistribution(0.01, 0.1),
        "a.decay > 0": optuna.distributions.CategoricalDistribution((False, True)),
    }
    for point in points:
        value = float(numpy.log(point["a.rate"]))
        study.add_trial(optuna.trial.create_trial(value=value, params=point, distributions=distributions))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=5 / 24)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    assert by_rate.knobs["a.rate"].share == pytest.approx(found["a.rate"])
    assert by_rate.knobs["a.decay"].share == pytest.approx(found["a.decay"] + found["a.decay > 0"])


def test_the_same_trials_give_the_same_numbers(points) -> None:
    scores = [point["a.share"] for point in points[:12]]
    once = knob_importances((RATE, SHARE, DECAY), points[:12], scores)
    assert once == knob_importances((RATE, SHARE, DECAY), points[:12], scores)


def test_of_noise_nothing_is_told_apart(points) -> None:
    scores = numpy.random.default_rng(8).standard_normal(len(points)).tolist()
    assert all(found.chance > 0.05 for found in knob_importances(KNOBS, points, scores).knobs.values())


def test_a_conditional_knob_is_no_obstacle() -> None:
    generator = numpy.random.default_rng(4)
    kind = Knob("a.kind", Choice(("x", "y")))
    inner = Knob("a.inner", FloatRange(0.0, 1.0), when=(Condition("a.kind", ("y",)),))
    points = []
    for number in range(20):
        point = {"a.kind": "y" if number % 2 else "x"}
        points.append(point | ({"a.inner": float(generator.uniform())} if number % 2 else {}))
    scores = [0.0 if point["a.kind"] == "x" else 1.0 + point["a.inner"] for point in points]
    found = knob_importances((kind, inner), points, scores).knobs
    assert found["a.kind"].share > found["a.inner"].share
    assert found["a.kind"].chance <= 0.05


def test_few_trials_are_refused(points) -> None:
    with pytest.raises(ValueError, match=f"at least {LEAST_TRIALS} trials are needed, got 11"):
        knob_importances(KNOBS, points[:11], [1.0] * 11)
