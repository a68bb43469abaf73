"""What a study has taught about its knobs: effects with their uncertainty, rates of failure, and what was only speed.

A run that ends by the clock trains more steps where its knobs make steps cheaper, and where nobody else was using the
machine. Both look like a better score. So scores are also held at equal tokens: with b the slope of the score in the
logarithm of the tokens that a run has seen, estimated beside the knobs (:mod:`golfray.sweep.additive_model`),

    score at trial 0's tokens = score - b ln(tokens / tokens of trial 0)
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from golfray.sweep.additive_model import AdditiveFit, Array, fit_additive
from golfray.sweep.knob_bins import KnobBins, bins_of
from golfray.sweep.knobs import Knob, values_at
from golfray.sweep.outcome_rates import OutcomeRates, outcome_rates
from golfray.sweep.records import StudyRecord
from golfray.sweep.statistics import reference_runs
from golfray.sweep.trial_record import TrialRecord

# Below this there is nothing that a sum of effects could be told from.
LEAST_RUNS = 8
# Tokens that differ by less, in the logarithm, are the same.
_SAME_TOKENS = 0.01
# Standard errors that a slope must lie below zero by, to be used.
_CLEAR = 2.0
# What rounding leaves of a slope where all scores are equal.
_NO_SLOPE = 1e-9


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number in bits per byte and its standard deviation."""

    value: float
    sd: float


@dataclasses.dataclass(frozen=True)
class PartKnown:
    """One part of a knob's domain. ``mean`` is of its ``scored`` runs as they are, None of none.

    ``effect`` is against the mean over the knob's parts in which there are scored runs, the other knobs accounted for;
    ``effect_at_tokens`` the same at equal tokens. Negative is better; None where it is not known.
    """

    label: str
    rates: OutcomeRates
    scored: int
    mean: float | None
    effect: Estimate | None
    effect_at_tokens: Estimate | None


@dataclasses.dataclass(frozen=True)
class KnobKnown:
    """A knob and the parts of its domain; ``inactive`` counts trials in which it was not searched."""

    path: str
    parts: tuple[PartKnown, ...]
    inactive: int


@dataclasses.dataclass(frozen=True)
class AtTokens:
    """A trial's score as it would be at trial 0's tokens; ``ratio`` is its tokens over those."""

    trial: int
    ratio: float
    score: Estimate


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """All of it. ``why_no_effects`` and ``why_no_slope`` say what is missing, None where nothing is.

    ``outside`` counts scored runs that are no points of the space. ``slope`` is b, in bits per byte per factor e of
    tokens. ``residual_sd`` is what the effects leave unexplained, in bits per byte. ``points`` and ``scores`` are the
    trials that were scored, repetitions left out.
    """

    knobs: tuple[KnobKnown, ...]
    runs: int
    outside: int
    points: tuple[Mapping[str, Any], ...]
    scores: tuple[float, ...]
    residual_sd: float | None
    why_no_effects: str | None
    slope: Estimate | None
    why_no_slope: str | None
    at_tokens: tuple[AtTokens, ...]


def known_of(record: StudyRecord, knobs: Sequence[Knob]) -> Knowledge:
    """What the trials of ``record`` say about ``knobs``, those of its space.

    A trial counts where it lies in the space; of those, scores of the study's fidelity count, over the cap or not.
    """
    inside = {trial.number: values for trial in record.trials if (values := _values(record, trial, knobs)) is not None}
    runs = [
        trial
        for trial in record.trials
        if trial.number in inside and trial.bpb is not None and record.is_comparable(trial)
    ]
    bins = [bins_of(knob) for knob in knobs]
    columns = list(itertools.chain.from_iterable([(own, part) for part in range(len(own.labels))] for own in bins))
    parts = numpy.array(
        [[float(_part(own, inside[trial.number]) == part) for own, part in columns] for trial in runs]
    ).reshape(len(runs), len(columns))
    scores = numpy.array([trial.bpb for trial in runs], dtype=numpy.float64)
    plain, why_none = _fit(scores, parts, numpy.ones((len(runs), 1)))
    logs, why_no_slope = _token_logs(record, runs)
    at_equal: AdditiveFit | None = None
    if logs is not None and plain is not None:
        at_equal, why_no_slope = _fit(scores, parts, numpy.column_stack([numpy.ones(len(runs)), logs]))
    elif plain is None:
        why_no_slope = why_none
    slope = None
    if at_equal is not None:
        slope = Estimate(float(at_equal.fixed[1]), float(numpy.sqrt(at_equal.fixed_covariance[1, 1])))
        if slope.value > -max(_CLEAR * slope.sd, _NO_SLOPE):
            why_no_slope = (
                f"more tokens do not clearly lower the score here (slope {slope.value:+.4f} +-{slope.sd:.4f})"
            )
            slope = at_equal = None
    fits = [plain, at_equal]
    known = [_knob(record, own, columns, inside, runs, parts, scores, fits) for own in bins]
    points = [trial for trial in runs if not trial.repeats]
    return Knowledge(
        knobs=tuple(known),
        runs=len(runs),
        outside=sum(trial.bpb is not None and trial.number not in inside for trial in record.trials),
        points=tuple(trial.params for trial in points),
        scores=tuple(trial.bpb for trial in points if trial.bpb is not None),
        residual_sd=None if plain is None else plain.residual_sd,
        why_no_effects=why_none,
        slope=slope,
        why_no_slope=None if slope is not None else why_no_slope,
        at_tokens=() if slope is None or logs is None else tuple(_at_tokens(runs, logs, slope)),
    )


def _values(record: StudyRecord, trial: TrialRecord, knobs: Sequence[Knob]) -> dict[str, Any] | None:
    """{path: value} of the knobs that are active in a trial; None where it is no point of the space."""
    implied = record.header["space"].get("implied", {})
    if not trial.params or any(trial.setting(path, value) != value for path, value in implied.items()):
        return None
    try:
        return values_at(knobs, trial.params)
    except KeyError:
        return None


def _part(bins: KnobBins, values: Mapping[str, Any]) -> int | None:
    path = bins.knob.path
    return bins.index(values[path]) if path in values else None


def _fit(scores: Array, parts: Array, fixed: Array) -> tuple[AdditiveFit | None, str | None]:
    if len(scores) < LEAST_RUNS:
        return None, f"{len(scores)} scored runs are too few, {LEAST_RUNS} are needed"
    return fit_additive(scores, parts, fixed), None


def _token_logs(record: StudyRecord, runs: Sequence[TrialRecord]) -> tuple[Array | None, str | None]:
    """ln(tokens / tokens of trial 0) of every run, or why there are none."""
    tokens = [_tokens(trial) for trial in runs]
    reference = [count for trial in reference_runs(record) if (count := _tokens(trial)) is not None]
    known = [count for count in tokens if count is not None]
    if not reference:
        return None, "trial 0 has no score, or does not say how many steps it made"
    if len(known) < len(tokens):
        return None, f"{len(tokens) - len(known)} runs do not say how many steps they made"
    origin = math.fsum(map(math.log, reference)) / len(reference)
    logs = numpy.log(numpy.array(known)) - origin
    if not known or float(numpy.ptp(logs)) < _SAME_TOKENS:
        return None, "all runs trained on the same number of tokens, so there is nothing to level"
    return logs, None


def _tokens(trial: TrialRecord) -> float | None:
    """Tokens that a run trained on."""
    steps = None if trial.outcome is None else trial.outcome.metrics.get("train/steps")
    batch = trial.setting("batch.tokens")
    if steps is None or batch is None or not (math.isfinite(steps) and steps > 0):
        return None
    return float(steps) * float(batch)


def _knob(
    record: StudyRecord,
    bins: KnobBins,
    columns: Sequence[tuple[KnobBins, int]],
    inside: Mapping[int, Mapping[str, Any]],
    runs: Sequence[TrialRecord],
    parts: Array,
    scores: Array,
    fits: Sequence[AdditiveFit | None],
) -> KnobKnown:
    own = [index for index, (other, _) in enumerate(columns) if other is bins]
    seen = [index for index in own if parts[:, index].any()]
    placed: dict[int | None, list[TrialRecord]] = {}
    for number, values in inside.items():
        placed.setdefault(_part(bins, values), []).append(record.trials[number])
    known = []
    for part, index in enumerate(own):
        chosen = parts[:, index] > 0
        effects = [_effect(fit, index, seen, len(columns)) for fit in fits]
        known.append(
            PartKnown(
                label=bins.labels[part],
                rates=outcome_rates(placed.get(part, [])),
                scored=int(chosen.sum()),
                mean=float(scores[chosen].mean()) if chosen.any() else None,
                effect=effects[0],
                effect_at_tokens=effects[1],
            )
        )
    return KnobKnown(bins.knob.path, tuple(known), len(placed.get(None, [])))


def _effect(fit: AdditiveFit | None, index: int, seen: Sequence[int], width: int) -> Estimate | None:
    """Of one part against the mean of all that were seen of its knob; None where it is the only one, or not seen."""
    if fit is None or index not in seen or len(seen) < 2:
        return None
    weights = numpy.zeros(width)
    weights[list(seen)] = -1.0 / len(seen)
    weights[index] += 1.0
    return Estimate(*fit.contrast(weights))


def _at_tokens(runs: Sequence[TrialRecord], logs: Array, slope: Estimate) -> list[AtTokens]:
    found = []
    for trial, log in zip(runs, logs.tolist(), strict=True):
        assert trial.bpb is not None
        level = Estimate(trial.bpb - slope.value * log, abs(log) * slope.sd)
        found.append(AtTokens(trial.number, math.exp(log), level))
    return found
