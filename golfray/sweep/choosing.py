"""Which trial of a study is best: that of the configuration with the lowest posterior mean over its seeds.

The lowest score of many is as much luck as merit. So a configuration is judged by every seed that the search ran it on,
drawn towards the others as far as the noise of the fidelity says. With n seeds of mean y, noise s, and configurations
whose true means lie around m with a spread t, its posterior is normal (Gelman et al., Bayesian Data Analysis, 5.4):

    precision = n / s^2 + 1 / t^2        mean = (n y / s^2 + m / t^2) / precision

``best_feasible`` is the single chooser: the terminal, the report, MLflow tags and a submission all ask it.
Confirmations do not count, not even for the noise: what is claimed of the best by them is not what made it the best.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence

from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.significance import Noise, pool, sample_of
from golfray.sweep.trial_record import CONFIRM, TrialRecord

# Posterior means that are less than so many standard errors of their difference apart are a near-tie.
_NEAR = 1.0


@dataclasses.dataclass(frozen=True)
class Standing:
    """A configuration that may be best. ``trial`` stands for it: the first one of it that fits.

    ``seeds`` is how many it was scored on, ``mean`` and ``posterior`` are in bits per byte, ``sd`` is the posterior's
    standard deviation, None where the noise is unknown: then the posterior is the mean. ``diverged``: whether one of
    its seeds did.
    """

    trial: TrialRecord
    seeds: int
    mean: float
    posterior: float
    sd: float | None
    diverged: bool


@dataclasses.dataclass(frozen=True)
class Choice:
    """All that may be best, the best first, and the noise that they were judged with, None where it is unknown."""

    standings: tuple[Standing, ...]
    noise: Noise | None

    @property
    def best(self) -> Standing | None:
        """None where nothing fits."""
        return self.standings[0] if self.standings else None

    @property
    def lowest(self) -> TrialRecord | None:
        """The trial with the lowest score of its own, which may have been luck; the earlier one on a tie."""
        trials = (standing.trial for standing in self.standings)
        return min(trials, key=lambda trial: (trial.bpb, trial.number), default=None)

    def near_ties(self) -> list[Standing]:
        """The best and those that the noise does not set apart from it, in their order; none where nothing is near."""
        best = self.best
        if best is None or best.sd is None:
            return []
        near = [
            other
            for other in self.standings
            if other.sd is not None
            and not other.diverged
            and other.posterior - best.posterior <= _NEAR * math.hypot(best.sd, other.sd)
        ]
        return near if len(near) > 1 else []


def best_feasible(record: StudyRecord) -> TrialRecord | None:
    """The trial that stands for the best configuration; None where nothing fits."""
    best = choose(record).best
    return None if best is None else best.trial


def choose(record: StudyRecord, before: int | None = None) -> Choice:
    """Rank the configurations of ``record.candidates`` by their posterior means; the earlier one on a tie.

    A configuration of which a seed diverged comes behind all of which none did. Without noise the scores decide.
    ``before``: only trials with a lower number count; None: all do.
    """
    trials = record.trials[:before]
    first_fits: dict[str, TrialRecord] = {}
    configurations = {trial.number: configuration for trial, configuration in _configurations(trials)}
    for trial in record.candidates:
        if trial.number not in configurations:
            break
        first_fits.setdefault(configurations[trial.number], trial)
    if not first_fits:
        return Choice((), None)
    scores: dict[str, dict[int, float]] = {}
    diverged = set()
    for trial in trials:
        configuration = configurations[trial.number]
        if trial.role == CONFIRM:
            continue
        if trial.bpb is not None and record.is_comparable(trial):
            # The same seed once more is no further seed.
            scores.setdefault(configuration, {}).setdefault(trial.seed, trial.bpb)
        elif trial.outcome is not None and trial.outcome.kind is Kind.DIVERGED:
            diverged.add(configuration)
    noise = pool(sample_of(list(found.values())) for found in scores.values())
    samples = [(trial, list(scores[configuration].values())) for configuration, trial in first_fits.items()]
    spread = None if noise is None else _Spread.of([found for _, found in samples], noise)
    standings = [
        _standing(trial, found, noise, spread, configuration in diverged)
        for (trial, found), configuration in zip(samples, first_fits, strict=True)
    ]
    return Choice(tuple(sorted(standings, key=_order)), noise)


def _configurations(trials: Sequence[TrialRecord]) -> Iterator[tuple[TrialRecord, str]]:
    """Every trial with a key that trials of the same configuration share, whatever their seeds."""
    keys: list[str] = []
    for trial in trials:
        own = trial.configuration or f"t{trial.number}"
        keys.append(own if trial.replicate_of is None else keys[trial.replicate_of])
        yield trial, keys[-1]


@dataclasses.dataclass(frozen=True)
class _Spread:
    """How true means of configurations are spread: normally, as far as the better half of them says.

    A search also tries what is far worse than the rest. The better half alone, mirrored at the median, says how far
    apart those are among which the best is.
    """

    mean: float
    variance: float

    @classmethod
    def of(cls, samples: Sequence[Sequence[float]], noise: Noise) -> _Spread:
        means = [statistics.fmean(scores) for scores in samples]
        middle = statistics.median(means)
        better = [
            ((mean - middle) ** 2, noise.sd**2 / len(scores))
            for mean, scores in zip(means, samples, strict=True)
            if mean <= middle
        ]
        seen, chance = (statistics.fmean(part) for part in zip(*better, strict=True))
        # Few configurations may lie together by chance: their number says how much of what is seen stays.
        return cls(middle, max(seen - chance, seen / len(samples)))


def _standing(
    trial: TrialRecord, scores: Sequence[float], noise: Noise | None, spread: _Spread | None, diverged: bool
) -> Standing:
    mean, seeds = statistics.fmean(scores), len(scores)
    if noise is None or spread is None:
        return Standing(trial, seeds, mean, mean, None, diverged)
    if spread.variance == 0:
        return Standing(trial, seeds, mean, mean, noise.sd / math.sqrt(seeds), diverged)
    own, others = seeds / noise.sd**2, 1 / spread.variance
    posterior = (own * mean + others * spread.mean) / (own + others)
    return Standing(trial, seeds, mean, posterior, 1 / math.sqrt(own + others), diverged)


def _order(standing: Standing) -> tuple[bool, float, int]:
    return standing.diverged, standing.posterior, standing.trial.number
