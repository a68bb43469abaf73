"""An outcome in Optuna's terms: what a sampler is told of a trial that ended."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from optuna.trial import TrialState

from golfray.sweep.outcome import Kind, Outcome

BYTES_OVER_CAP = "bytes_over_cap"
DIVERGED = "diverged"

# Notes with a trial, which TPE does not read.
REFUSED = "refused"
SHARE = "share"

_CURVE_METRIC = "train/loss"

# Optuna's steps are whole numbers: those of a run of the study's length.
_WHOLE = 1000


@dataclasses.dataclass(frozen=True)
class Verdict:
    """An outcome in Optuna's terms. ``value`` is in bits per byte; a constraint is violated where it is above 0.

    ``notes``: what else a sampler may want to know, {``REFUSED``: 1} of a point whose value is none that was seen,
    {``SHARE``: share} of a run of so much of the length.
    """

    state: TrialState
    value: float | None = None
    constraints: dict[str, float] = dataclasses.field(default_factory=dict)
    curve: dict[int, float] = dataclasses.field(default_factory=dict)
    notes: dict[str, float] = dataclasses.field(default_factory=dict)


def verdict_on(
    outcome: Outcome,
    curve: Sequence[tuple[int, Mapping[str, float]]],
    *,
    cap_bytes: int,
    uniform_bpb: float,
    size_reserve: float = 0.0,
    share: float = 1.0,
) -> Verdict:
    """What the sampler is told of an outcome (design.md, "What the sampler is told").

    ``size_reserve``: bytes that another seed of the point may be larger by, at the level of the chance constraint (see
    :func:`golfray.sweep.fit.size_reserve`). A point that was refused because it cannot fit has the size that was
    foreseen, and the worst score.

    A short run, of a ``share`` below 1, is pruned with its score at its length: Optuna ranks what went further before
    all that did not, and compares only what went equally far. Its size is not told.

    A diverged run wrote no model, so nothing is known about its bytes: it violates its own constraint instead, by as
    much as a file of twice the cap would, since violations of all constraints are ranked on one scale. Raises
    ``ValueError`` where a run that was scored has no finite score or size.
    """
    if outcome.kind is Kind.INFEASIBLE and outcome.refused_margin is not None:
        violations = {BYTES_OVER_CAP: -outcome.refused_margin, DIVERGED: 0.0}
        return Verdict(TrialState.COMPLETE, uniform_bpb, violations, notes={REFUSED: 1.0})
    if outcome.kind in (Kind.SCORED, Kind.INFEASIBLE) and share != 1.0:
        score = outcome.metrics["bpb/roundtrip"]
        return Verdict(TrialState.PRUNED, curve={round(_WHOLE * share): score}, notes={SHARE: share})
    if outcome.kind in (Kind.SCORED, Kind.INFEASIBLE):
        value, total = outcome.metrics.get("bpb/roundtrip", math.nan), outcome.metrics.get("bytes/total", math.nan)
        if not (math.isfinite(value) and math.isfinite(total)):
            raise ValueError(
                f"a {outcome.kind} outcome needs finite bpb/roundtrip and bytes/total, got {value}, {total}"
            )
        return Verdict(TrialState.COMPLETE, value, {BYTES_OVER_CAP: total + size_reserve - cap_bytes, DIVERGED: 0.0})
    if outcome.kind is Kind.DIVERGED:
        return Verdict(TrialState.COMPLETE, uniform_bpb, {DIVERGED: float(cap_bytes)})
    if outcome.kind is Kind.STOPPED:
        points = {step: metrics[_CURVE_METRIC] for step, metrics in curve if _CURVE_METRIC in metrics}
        return Verdict(TrialState.PRUNED, curve={step: value for step, value in points.items() if math.isfinite(value)})
    return Verdict(TrialState.FAIL)
