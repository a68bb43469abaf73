"""What a study's own finished trials say of its expected sizes: how far off they are, and how far seeds lie apart.

A clip rule (with format, floor, GPTQ, overrides and codec) has its own errors: what was learned of one says nothing of
another. Only runs that went to their end count, of the study's fidelity and as long as what is foreseen: sizes of
shorter runs are smaller, and would let points pass that do not fit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

from golfray.core.settings import ExportSettings, RunSettings, settings_from_dict
from golfray.sweep.records import StudyRecord
from golfray.sweep.size_estimate import SizeEstimate
from golfray.sweep.trial_record import TrialRecord

# Relative standard deviation of model bytes between seeds before any were seen: records under k standard deviations
# differed by 1 to 12 kB of 16 MB, under other clip rules by 10 to 280 kB. It counts as much as so many seeds more.
_SPREAD_STD = 0.0005
_SPREAD_ELSE = 0.005
_SPREAD_WEIGHT = 2

# What remains of an estimate's error once the study's own bias is known, as a share of it, before any was seen.
_RESIDUAL = 0.5
_RESIDUAL_WEIGHT = 2

# Far below any byte of any model.
_UNIT = 2.0**-50

Predict = Callable[[RunSettings, int], SizeEstimate]


@dataclasses.dataclass(frozen=True)
class ClipRule:
    """What must be equal for one model's size to say something of another's."""

    format: str
    clips: tuple[str, ...]
    floor: bool
    gptq: bool
    overrides: str
    codec: str


@dataclasses.dataclass(frozen=True)
class SizeRun:
    """A finished run: its ``rule``, what all seeds of it have in common, and its bytes, foreseen and measured."""

    rule: ClipRule
    configuration: int
    foreseen: SizeEstimate
    bytes_model: float

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over foreseen bytes."""
        return math.log(self.bytes_model / self.foreseen.bytes)


@dataclasses.dataclass(frozen=True)
class SeedSpread:
    """Relative standard deviation of model bytes between seeds, known as well as from ``freedom`` + 1 of them.

    ``seeds``: how many the study has run of configurations that it ran on several; 0 where all is prior knowledge.
    """

    relative: float
    freedom: int
    seeds: int


@dataclasses.dataclass
class _Configuration:
    """Seeds of one configuration: how many, and the sums of their log ratios and of the squares of these."""

    count: int = 0
    total: int = 0
    squares: int = 0

    @property
    def mean(self) -> int:
        return round(self.total / self.count)

    @property
    def deviations(self) -> float:
        """The sum of the squared deviations from the mean."""
        return max(self.squares - self.total * self.total / self.count, 0.0)


class _RuleRuns:
    """Runs under one clip rule as sums, so that what they say does not take longer the more there are.

    Log ratios are whole multiples of ``_UNIT`` here: sums of integers do not depend on the order in which runs ended,
    so a study that is rebuilt from its log knows to the last bit what the one before knew.
    """

    def __init__(self) -> None:
        self.configurations: dict[int, _Configuration] = {}
        self._means = self._mean_squares = 0
        self._several = self._seeds = 0
        self._deviations = 0.0

    def add(self, run: SizeRun) -> None:
        """Take in one more run."""
        own = self.configurations.setdefault(run.configuration, _Configuration())
        self._count(own, -1)
        ratio = round(run.log_ratio / _UNIT)
        own.count += 1
        own.total += ratio
        own.squares += ratio * ratio
        self._count(own, +1)

    def _count(self, own: _Configuration, sign: int) -> None:
        if own.count:
            self._means += sign * own.mean
            self._mean_squares += sign * own.mean**2
        if own.count > 1:
            self._several += sign
            self._seeds += sign * own.count
            self._deviations += sign * round(own.deviations)

    @property
    def mean(self) -> float:
        """Mean log ratio of the configurations, each averaged over its seeds."""
        return self._means * _UNIT / len(self.configurations)

    @property
    def squares(self) -> float:
        """The sum of their squared deviations from that."""
        count = len(self.configurations)
        return max(self._mean_squares - self._means**2 / count, 0.0) * _UNIT**2

    @property
    def seeds(self) -> int:
        """Runs of configurations that ran on several seeds."""
        return self._seeds

    @property
    def freedom(self) -> int:
        """Degrees of freedom of :attr:`seed_squares`."""
        return self._seeds - self._several

    @property
    def seed_squares(self) -> float:
        """The sum of squared deviations of seeds from their configurations' means."""
        return self._deviations * _UNIT**2


class SizeCalibration:
    """What finished runs say, by clip rule."""

    def __init__(self, runs: Iterable[SizeRun] = ()) -> None:
        self._rules: dict[ClipRule, _RuleRuns] = {}
        for run in runs:
            self.add(run)

    def add(self, run: SizeRun) -> None:
        """Take in one more run."""
        self._rules.setdefault(run.rule, _RuleRuns()).add(run)

    def configurations(self, export: ExportSettings) -> int:
        """How many configurations of this clip rule were measured."""
        runs = self._rules.get(clip_rule(export))
        return 0 if runs is None else len(runs.configurations)

    def corrected(self, export: ExportSettings, estimate: SizeEstimate) -> SizeEstimate:
        """The estimate without the bias that was seen, and with the error that is left; as it is where none was seen.

        The bias has the prior N(0, ``relative_error``); each configuration, averaged over its seeds, is one observation
        of it, with a variance of its own that is estimated from them and from a prior.
        """
        runs = self._rules.get(clip_rule(export))
        if runs is None:
            return estimate
        prior, count = estimate.relative_error**2, len(runs.configurations)
        residual = (_RESIDUAL_WEIGHT * _RESIDUAL**2 * prior + runs.squares) / (_RESIDUAL_WEIGHT + count - 1)
        bias = runs.mean * count / (count + residual / prior)
        left = math.sqrt(residual + 1 / (1 / prior + count / residual))
        parts = {part: round(taken * math.exp(bias)) for part, taken in estimate.parts.items()}
        size = round(estimate.bytes * math.exp(bias))
        return dataclasses.replace(estimate, bytes=size, relative_error=left, parts=_summing_to(size, parts))

    def spread(self, export: ExportSettings) -> SeedSpread:
        """How far seeds lie apart under this clip rule."""
        rule = clip_rule(export)
        prior = _SPREAD_STD if set(rule.clips) == {"std"} and not rule.floor else _SPREAD_ELSE
        runs = self._rules.get(rule) or _RuleRuns()
        freedom = _SPREAD_WEIGHT + runs.freedom
        relative = math.sqrt((_SPREAD_WEIGHT * prior**2 + runs.seed_squares) / freedom)
        return SeedSpread(relative, freedom, runs.seeds)


def clip_rule(export: ExportSettings) -> ClipRule:
    """The clip rule of some export settings; the reference's own exporter clips at a quantile."""
    clips = (export.clip_attention, export.clip_mlp, export.clip_embedding)
    return ClipRule(export.format, clips, export.scale_floor > 0, export.gptq, export.overrides, export.codec)


def size_runs(record: StudyRecord, stop: Mapping[str, object], predict: Predict) -> list[SizeRun]:
    """The runs of a study that count for one that ends at ``stop`` (the section of that name)."""
    runs = (size_run(record, trial, predict) for trial in record.trials if trial.setting("stop") == stop)
    return [run for run in runs if run is not None]


def size_run(record: StudyRecord, trial: TrialRecord, predict: Predict) -> SizeRun | None:
    """What a finished trial says; None where it says nothing."""
    size, steps = measured_size(record, trial), measured_steps(trial)
    if size is None or steps is None or trial.settings is None:
        return None
    try:
        settings = settings_from_dict(dict(trial.settings))
    except TypeError:
        return None  # a log of another version of golfray, whose exporter may have been another too
    configuration = trial.number if trial.replicate_of is None else trial.replicate_of
    return SizeRun(clip_rule(settings.export), configuration, predict(settings, steps), size)


def measured_size(record: StudyRecord, trial: TrialRecord) -> float | None:
    """Bytes of the model of a trial that ran to its end at the study's fidelity; None for every other."""
    if trial.bpb is None or trial.outcome is None or not record.is_comparable(trial):
        return None
    size = trial.outcome.metrics.get("bytes/model", math.nan)
    return size if size > 0 and math.isfinite(size) else None


def measured_steps(trial: TrialRecord) -> int | None:
    """Optimizer steps that a trial took; None where its end does not say."""
    steps = math.nan if trial.outcome is None else trial.outcome.metrics.get("train/steps", math.nan)
    return int(steps) if math.isfinite(steps) and steps >= 1 else None


def _summing_to(size: int, parts: dict[str, int]) -> dict[str, int]:
    """The parts with what rounding left over put to the largest."""
    if not parts:
        return parts
    largest = max(parts, key=lambda part: parts[part])
    return {**parts, largest: parts[largest] + size - sum(parts.values())}
