"""Which knobs separate the best trials from all: Optuna's PED-ANOVA, held against what chance gives.

PED-ANOVA (Watanabe, Bansal and Hutter 2023) compares where the best trials lie with where all lie, one parameter at a
time. Of Optuna's evaluators it is the one that copes with a study of ours: it knows conditional parameters, and as it
looks at ranks, no single bad score decides it. fANOVA and mean decrease of impurity need every parameter in every trial
and explain variance, most of which is that of the worst. None of them knows of constraints or of failures, so what is
given to it here is scores alone; failures are counted beside (:mod:`golfray.sweep.outcome_rates`).

It gives numbers for any data, noise included. So the same is asked of the same points with their scores shuffled, and
a knob's chance is the share of shuffles that made it look at least as important.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import optuna

from golfray.sweep.knobs import Knob, parameters_of
from golfray.sweep.sampler import distribution_of

# The evaluator's own advice is five trials or more among the best, and they must not be most of all.
LEAST_TRIALS = 12
_LEAST_BEST = 5
_BEST_SHARE = 0.1

# A shuffle of n trials takes milliseconds times n; with 19 of them a chance of .05 can still be seen.
_MOST_SHUFFLES, _LEAST_SHUFFLES, _SHUFFLED_TRIALS = 99, 19, 6_000
# Of a longer study the last ones count.
MOST_TRIALS = 1_000
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Importance:
    """``share`` of all knobs' importance, 0 to 1; ``chance`` is how often shuffled scores gave the knob as much."""

    share: float
    chance: float


@dataclasses.dataclass(frozen=True)
class Importances:
    """{path: importance} of every knob. ``best`` of ``trials`` trials were the best; ``shuffles`` were tried."""

    knobs: dict[str, Importance]
    best: int
    trials: int
    shuffles: int


def knob_importances(
    knobs: Sequence[Knob], points: Sequence[Mapping[str, Any]], scores: Sequence[float]
) -> Importances:
    """Importances for low ``scores`` at ``points``, each a point of the sampler, the last ``MOST_TRIALS`` of them.

    A knob of two parameters has the sum of both. The same trials give the same numbers. Raises ``ValueError`` of fewer
    than ``LEAST_TRIALS`` trials.
    """
    points, scores = points[-MOST_TRIALS:], scores[-MOST_TRIALS:]
    count = len(scores)
    if count < LEAST_TRIALS:
        raise ValueError(f"at least {LEAST_TRIALS} trials are needed, got {count}")
    best = max(_LEAST_BEST, math.ceil(_BEST_SHARE * count))
    # A hair above, so that the evaluator's own rounding ends at this number.
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=min((best - 0.5) / count, 0.99))
    study = _study(knobs, points)
    seen = _evaluate(evaluator, study, knobs, scores)
    shuffles = min(_MOST_SHUFFLES, max(_LEAST_SHUFFLES, _SHUFFLED_TRIALS // count))
    generator = numpy.random.default_rng(_SEED)
    as_much = dict.fromkeys(seen, 0)
    for _ in range(shuffles):
        shuffled = _evaluate(evaluator, study, knobs, generator.permutation(numpy.asarray(scores)).tolist())
        for path, value in seen.items():
            as_much[path] += shuffled[path] >= value
    total = sum(seen.values())
    found = {
        path: Importance(value / total if total > 0 else 0.0, (1 + as_much[path]) / (1 + shuffles))
        for path, value in seen.items()
    }
    return Importances(found, best, count, shuffles)


def _study(knobs: Sequence[Knob], points: Sequence[Mapping[str, Any]]) -> optuna.Study:
    distributions = {name: distribution_of(parameter) for name, parameter in parameters_of(knobs).items()}
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(direction="minimize")
    finally:
        optuna.logging.set_verbosity(before)
    for point in points:
        study.add_trial(
            optuna.trial.create_trial(
                value=0.0, params=dict(point), distributions={name: distributions[name] for name in point}
            )
        )
    return study


def _evaluate(
    evaluator: optuna.importance.PedAnovaImportanceEvaluator,
    study: optuna.Study,
    knobs: Sequence[Knob],
    scores: Sequence[float],
) -> dict[str, float]:
    with warnings.catch_warnings():
        # That low targets are what is wanted, and that some regimes are small: both are known.
        warnings.simplefilter("ignore")
        found = evaluator.evaluate(study, target=lambda trial: scores[trial.number])
    sums = {knob.path: math.fsum(found.get(name, 0.0) for name in knob.parameters) for knob in knobs}
    return {path: value for path, value in sums.items() if math.isfinite(value)}
