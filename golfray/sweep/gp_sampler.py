"""Points where a Gaussian process of what was seen expects the most: a sampler of Optuna's kind.

The score is modelled in the logarithm of its distance from the best one, so that what is far worse does not hide how
good points differ. Another process says where a file fits under the cap, from every size that is known. The next
point has the highest expected improvement over the best that is foreseen of a run that fitted, times the probability
that it fits (Gardner et al., Bayesian Optimization with Inequality Constraints, 2014). What crashed, diverged or was
stopped counts as one of the worst, and a running trial as if it had ended as foreseen.

The sampler has no memory: a suggestion is a function of its seed and of the trials that the Optuna study holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from golfray.sweep.gaussian_process import Array, GaussianProcess
from golfray.sweep.verdict import BYTES_OVER_CAP, DIVERGED, REFUSED, SHARE

# Where the search for the best point begins: so many points anywhere, and so many near each of the best known.
_ANYWHERE = 512
_BEST_KNOWN = 5
_NEAR = ((0.1, 40), (0.02, 20))

# How it goes on: so many rounds, in each so many children of so many parents, ever closer to them.
_ROUNDS = 6
_PARENTS, _CHILDREN = 8, 24
_WIDTH, _CLOSER = 0.1, 0.6


class GaussianProcessSampler(optuna.samplers.BaseSampler):
    """Suggests all of ``distributions`` together.

    A parameter that a trial does not have counts as at the middle of its range there. Runs of a length are compared
    once there are ``least`` of them.
    """

    def __init__(self, distributions: Mapping[str, BaseDistribution], *, least: int, seed: int) -> None:
        self._columns = {name: _Column(own) for name, own in distributions.items() if not own.single()}
        self._distributions = {name: distributions[name] for name in self._columns}
        self._choice = numpy.array([column.choice for column in self._columns.values()], dtype=bool)
        self._least = least
        self._draw = numpy.random.default_rng(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Everything, whatever other trials had."""
        return dict(self._distributions)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never asked: a parameter with one value has nothing to sample. Raises ``KeyError``."""
        raise KeyError(f"{param_name} is none of {sorted(self._distributions)}")

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next point, {name: value}."""
        if not self._columns:
            return {}
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        ended = [other for other in others if other.state.is_finished()]
        running = self._points([other for other in others if not other.state.is_finished()])
        return self._params(self._best_point(ended, running))

    def _best_point(self, ended: Sequence[FrozenTrial], running: Array) -> Array:
        runs, values = _compared(ended, self._least)
        parts: list[Callable[[Array], Array]] = []
        known = self._points(runs)
        if len(runs) >= 2:
            score = GaussianProcess.fit(known, _warped(values), self._choice)
            foreseen = score.predict(known)[0]
            fits = numpy.array([_fits(run) for run in runs])
            best = foreseen[fits].min() if fits.any() else foreseen.max()
            known = known[numpy.argsort(numpy.where(fits, foreseen, math.inf), kind="stable")]
            if len(running):
                best = min(best, score.predict(running)[0].min())
            parts.append(_log_improvement(score.believing(running), best))
        sized = [run for run in ended if BYTES_OVER_CAP in run.constraints]
        over = numpy.array([run.constraints[BYTES_OVER_CAP] for run in sized])
        if (over > 0).any():
            parts.append(_log_fits(GaussianProcess.fit(self._points(sized), over, self._choice)))
        return self._highest(lambda points: sum((part(points) for part in parts), numpy.zeros(len(points))), known)

    def _highest(self, worth: Callable[[Array], Array], known: Array) -> Array:
        """Where ``worth`` is highest, as far as random points and ever smaller steps from the best of them find it."""
        best = known[:_BEST_KNOWN]
        around = [self._near(numpy.repeat(best, count, axis=0), width) for width, count in _NEAR]
        points = numpy.concatenate([self._anywhere(_ANYWHERE), *around])
        worths = worth(points)
        for number in range(_ROUNDS):
            parents = numpy.argsort(-worths, kind="stable")[:_PARENTS]
            children = self._near(numpy.repeat(points[parents], _CHILDREN, axis=0), _WIDTH * _CLOSER**number)
            points = numpy.concatenate([points[parents], children])
            worths = numpy.concatenate([worths[parents], worth(children)])
        return points[numpy.argmax(worths)]

    def _anywhere(self, count: int) -> Array:
        return self._settled(self._draw.random((count, len(self._columns))))

    def _near(self, points: Array, width: float) -> Array:
        """Each with about half of its parameters moved: by so much of their range, at least a step, or to a choice."""
        steps = numpy.array([column.step for column in self._columns.values()])
        moved = points + numpy.maximum(width, steps) * self._draw.standard_normal(points.shape)
        moved = numpy.where(self._choice, self._draw.random(points.shape), moved)
        return self._settled(numpy.where(self._draw.random(points.shape) < 0.5, points, numpy.clip(moved, 0, 1)))

    def _settled(self, points: Array) -> Array:
        """The nearest points that a trial can have."""
        columns = self._columns.values()
        settled = [column.inside(column.outside(own)) for column, own in zip(columns, points.T, strict=True)]
        return numpy.stack(settled, axis=1)

    def _points(self, trials: Sequence[FrozenTrial]) -> Array:
        """Where they lie in the unit cube, shape (trials, parameters)."""
        points = numpy.full((len(trials), len(self._columns)), 0.5)
        for index, (name, column) in enumerate(self._columns.items()):
            have = [number for number, trial in enumerate(trials) if name in trial.params]
            values = [column.distribution.to_internal_repr(trials[number].params[name]) for number in have]
            points[have, index] = column.inside(numpy.array(values, dtype=float))
        return points

    def _params(self, point: Array) -> dict[str, Any]:
        return {
            name: column.distribution.to_external_repr(column.outside(point[index : index + 1])[0].item())
            for index, (name, column) in enumerate(self._columns.items())
        }


class _Column:
    """One parameter between its own values, as Optuna holds them, and the unit interval.

    Values of a range by steps have equal parts of the interval, with each in the middle of its part.
    """

    def __init__(self, distribution: Any) -> None:
        self.distribution = distribution
        self.choice = isinstance(distribution, CategoricalDistribution)
        self._log = not self.choice and distribution.log
        if self.choice:
            self._low, self._high, self._grid = 0.0, len(distribution.choices) - 1.0, 1.0
        else:
            self._low, self._high, self._grid = distribution.low, distribution.high, distribution.step or 0.0
        ends = numpy.array([self._low - self._grid / 2, self._high + self._grid / 2])
        self._from, self._to = numpy.log(ends) if self._log else ends
        # Of the interval: how far it is to the next value.
        self.step = 0.0 if self._log else self._grid / (self._to - self._from)

    def inside(self, values: Array) -> Array:
        """Within the unit interval."""
        return ((numpy.log(values) if self._log else values) - self._from) / (self._to - self._from)

    def outside(self, places: Array) -> Array:
        """The values nearest to these places."""
        values = self._from + places * (self._to - self._from)
        values = numpy.exp(values) if self._log else values
        if self._grid:
            values = self._low + numpy.round((values - self._low) / self._grid) * self._grid
        return numpy.clip(values, self._low, self._high)


def _fits(trial: FrozenTrial) -> bool:
    """Whether it has a score of its own and violates nothing."""
    return trial.state == TrialState.COMPLETE and all(value <= 0 for value in trial.constraints.values())


def _is_hopeless(trial: FrozenTrial) -> bool:
    """Whether it crashed, diverged, or was stopped because it could not be the best."""
    stopped = trial.state == TrialState.PRUNED and SHARE not in trial.user_attrs
    return stopped or trial.state == TrialState.FAIL or trial.constraints.get(DIVERGED, 0.0) > 0


def _compared(ended: Sequence[FrozenTrial], least: int) -> tuple[list[FrozenTrial], Array]:
    """Runs of one length that have a score, and their scores: of the whole one as soon as ``least`` runs had it.

    Before that of the longest that so many had, and where there is none, whole runs. What crashed, diverged or was
    stopped counts as one of the worst of them.
    """
    lengths: dict[float, list[FrozenTrial]] = {1.0: []}
    hopeless = [trial for trial in ended if _is_hopeless(trial)]
    for trial in ended:
        if trial not in hopeless and trial.value is not None and REFUSED not in trial.user_attrs:
            lengths.setdefault(trial.user_attrs.get(SHARE, 1.0), []).append(trial)
    share = max((share for share, runs in lengths.items() if len(runs) >= least), default=1.0)
    values = [trial.value for trial in lengths[share] if trial.value is not None]
    if not values:
        return [], numpy.empty(0)
    return lengths[share] + hopeless, numpy.array(values + [max(values)] * len(hopeless))


def _warped(values: Array) -> Array:
    """Logarithms of the distances from the best, in which the median is at ln 2."""
    apart = values - values.min()
    return numpy.log1p(apart / (numpy.median(apart) or 1.0))


def _log_improvement(process: GaussianProcess, best: float) -> Callable[[Array], Array]:
    """The logarithm of the expected improvement over ``best``.

    Ament et al., Unexpected Improvements to Expected Improvement for Bayesian Optimization (2023), eq. 9.
    """
    from scipy.special import erfcx, ndtr

    def worth(points: Array) -> Array:
        mean, sd = process.predict(points)
        # Beyond a hundred standard deviations nothing differs.
        z = numpy.maximum((best - mean) / sd, -100.0)
        near, far = numpy.maximum(z, -1.0), numpy.minimum(z, -1.0)
        density = -0.5 * z * z - 0.5 * math.log(2 * math.pi)
        exact = numpy.log(numpy.exp(-0.5 * near * near) / math.sqrt(2 * math.pi) + near * ndtr(near))
        tail = density + numpy.log1p(math.sqrt(math.pi / 2) * far * erfcx(-far / math.sqrt(2)))
        result: Array = numpy.log(sd) + numpy.where(z > -1.0, exact, tail)
        return result

    return worth


def _log_fits(process: GaussianProcess) -> Callable[[Array], Array]:
    """The logarithm of the probability that the function is below 0."""
    from scipy.special import log_ndtr

    def worth(points: Array) -> Array:
        mean, sd = process.predict(points)
        result: Array = log_ndtr(-mean / sd)
        return result

    return worth
