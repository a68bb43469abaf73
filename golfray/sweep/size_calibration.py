"""What a study's own finished trials say of its expected sizes: how far off they are, and how far seeds lie apart.

A clip rule (with format, floor, GPTQ, overrides and codec) has its own errors: what was learned of one says nothing of
another. Only runs that went to their end count, of the study's fidelity and as long as what is foreseen: sizes of
shorter runs are smaller, and would let points pass that do not fit.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping

from golfray.core.settings import ExportSettings, RunSettings, settings_from_dict
from golfray.sweep.records import StudyRecord
from golfray.sweep.size import SizeEstimate
from golfray.sweep.trial_record import TrialRecord

# Relative standard deviation of model bytes between seeds before any were seen: records under k standard deviations
# differed by 1 to 12 kB of 16 MB, under other clip rules by 10 to 280 kB. It counts as much as so many seeds more.
_SPREAD_STD = 0.0005
_SPREAD_ELSE = 0.005
_SPREAD_WEIGHT = 2

# What remains of an estimate's error once the study's own bias is known, as a share of it, before any was seen.
_RESIDUAL = 0.5
_RESIDUAL_WEIGHT = 2

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


class SizeCalibration:
    """What finished runs say, by clip rule."""

    def __init__(self, runs: Iterable[SizeRun] = ()) -> None:
        self._runs: dict[ClipRule, list[SizeRun]] = {}
        for run in runs:
            self._runs.setdefault(run.rule, []).append(run)

    def configurations(self, export: ExportSettings) -> int:
        """How many configurations of this clip rule were measured."""
        return len({run.configuration for run in self._runs.get(clip_rule(export), ())})

    def corrected(self, export: ExportSettings, estimate: SizeEstimate) -> SizeEstimate:
        """The estimate without the bias that was seen, and with the error that is left; as it is where none was seen.

        The bias has the prior N(0, ``relative_error``); each configuration, averaged over its seeds, is one observation
        of it, with a variance of its own that is estimated from them and from a prior.
        """
        runs = self._runs.get(clip_rule(export), [])
        if not runs:
            return estimate
        ratios = [statistics.fmean(ratios) for ratios in _by_configuration(runs).values()]
        prior, count = estimate.relative_error**2, len(ratios)
        mean = statistics.fmean(ratios)
        squares = math.fsum((ratio - mean) ** 2 for ratio in ratios)
        residual = (_RESIDUAL_WEIGHT * _RESIDUAL**2 * prior + squares) / (_RESIDUAL_WEIGHT + count - 1)
        bias = mean * count / (count + residual / prior)
        left = math.sqrt(residual + 1 / (1 / prior + count / residual))
        parts = {part: round(taken * math.exp(bias)) for part, taken in estimate.parts.items()}
        size = round(estimate.bytes * math.exp(bias))
        return dataclasses.replace(estimate, bytes=size, relative_error=left, parts=_summing_to(size, parts))

    def spread(self, export: ExportSettings) -> SeedSpread:
        """How far seeds lie apart under this clip rule."""
        rule = clip_rule(export)
        prior = _SPREAD_STD if set(rule.clips) == {"std"} and not rule.floor else _SPREAD_ELSE
        several = [ratios for ratios in _by_configuration(self._runs.get(rule, [])).values() if len(ratios) > 1]
        squares = math.fsum(statistics.variance(ratios) * (len(ratios) - 1) for ratios in several)
        freedom = _SPREAD_WEIGHT + sum(len(ratios) - 1 for ratios in several)
        relative = math.sqrt((_SPREAD_WEIGHT * prior**2 + squares) / freedom)
        return SeedSpread(relative, freedom, sum(map(len, several)))


def clip_rule(export: ExportSettings) -> ClipRule:
    """The clip rule of some export settings; the reference's own exporter clips at a quantile."""
    clips = (export.clip_attention, export.clip_mlp, export.clip_embedding)
    return ClipRule(export.format, clips, export.scale_floor > 0, export.gptq, export.overrides, export.codec)


def size_runs(record: StudyRecord, stop: Mapping[str, object], predict: Predict) -> list[SizeRun]:
    """The runs of a study that count for one that ends at ``stop`` (the section of that name)."""
    runs = []
    for trial in record.trials:
        size, steps = measured_size(record, trial), measured_steps(trial)
        if size is None or steps is None or trial.setting("stop") != stop or trial.settings is None:
            continue
        try:
            settings = settings_from_dict(dict(trial.settings))
        except TypeError:
            continue  # a log of another version of golfray, whose exporter may have been another too
        configuration = trial.number if trial.replicate_of is None else trial.replicate_of
        runs.append(SizeRun(clip_rule(settings.export), configuration, predict(settings, steps), size))
    return runs


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


def _by_configuration(runs: Iterable[SizeRun]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for run in runs:
        found.setdefault(run.configuration, []).append(run.log_ratio)
    return found


def _summing_to(size: int, parts: dict[str, int]) -> dict[str, int]:
    """The parts with what rounding left over put to the largest."""
    if not parts:
        return parts
    largest = max(parts, key=lambda part: parts[part])
    return {**parts, largest: parts[largest] + size - sum(parts.values())}
