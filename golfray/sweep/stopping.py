"""One late look at every trial of the sampler's: whether it is clear from its curve that it will not be the best.

Early ranks deceive: over 19 public runs the loss at a fifth of the time ranks runs as their final score does by .59, at
half of it by .85, at seven tenths by .95 (Spearman), and a run whose rate has not fallen yet has more of its drop ahead
than one whose rate has. So the look comes late (:data:`CHECK_AT`), at the same share of the time for all, and what is
still to come is learned from this study's own finished runs: a linear regression of their score before the export on
their loss and their learning-rate multiplier at that share. A trial is stopped where its chance of ending below the
best feasible score, by the regression's own scatter, is under :data:`CHANCE`. Sizes are no part of it, nor is anything
of another study or fidelity.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy

from golfray.core.schedule import run_progress
from golfray.core.settings import StopSettings
from golfray.sweep.choosing import best_feasible
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.significance import student_above
from golfray.sweep.trial_record import CONFIRM, SAMPLER, AttemptRecord, TrialRecord

OFF = "off"
LATE_CHECK = "late_check"
RUNGS = "rungs"

CHECK_AT = 0.6
"""Share of the run at which it is looked at, by whichever clock ends it: never before half of it."""

CHANCE = 0.02
"""A trial whose chance of becoming the best is smaller is stopped."""

KNOWN = 8
"""Finished runs of which the regression needs at least so many: it has three coefficients."""

AUDIT_SHARE = 0.05
"""Share of the trials found hopeless that run on all the same, so that it shows what the check costs."""

# More would not say more, and a look would take the longer the longer a study is.
_REMEMBERED = 200

# Single losses jump by a batch; all curves are averaged over the same stretch before the check.
_WINDOW = 0.1
_GRID = 21

# Losses and multipliers that differ by less do not differ.
_SAME = 1e-9


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a look at a running trial found.

    ``share``: of the run that was over. ``expected``: its final score in bits per byte, by a regression over ``known``
    runs. ``chance``: of ending below ``bar``, the best feasible score.
    """

    share: float
    expected: float
    chance: float
    bar: float
    known: int

    @property
    def hopeless(self) -> bool:
        """Whether it is clear that the trial will not be the best."""
        return self.chance < CHANCE

    def words(self) -> str:
        """Why, for a person."""
        return (
            f"late check at {100 * self.share:.0f}% of the run: {self.expected:.4f} bits per byte expected, a chance "
            f"of {100 * self.chance:.2g}% to end below the best feasible {self.bar:.4f}"
        )


def look(record: StudyRecord, trial: TrialRecord) -> Finding | None:
    """What is to be expected of a trial that has just reported; None where this is not the moment, or too little known.

    The moment is the first report at or after ``CHECK_AT`` of the run, for trials that the sampler suggested: what a
    person asked for, and what everything is compared with, runs to its end. It follows from the record alone.
    """
    if trial.role != SAMPLER or not _has_just_come(trial, CHECK_AT) or (curve := Curve.of(trial)) is None:
        return None
    share, best = curve.shares[-1], best_feasible(record)
    finished = (_finished(record, other, share) for other in reversed(record.trials))
    known = list(itertools.islice((found for found in finished if found is not None), _REMEMBERED))
    if best is None or best.bpb is None or len(known) < KNOWN:
        return None
    features, prequants, gaps = (numpy.array(column) for column in zip(*known, strict=True))
    prediction = _predict(features, prequants, numpy.array(curve.features(share)))
    # What the export costs a trial is seen at its end only: no less than it cost any other.
    expected = prediction.mean + float(gaps.min())
    return Finding(share, expected, prediction.chance_below(best.bpb - float(gaps.min())), best.bpb, len(known))


def is_audited(seed: int, number: int) -> bool:
    """Whether a trial of the study with this seed runs on although it is found hopeless; always the same answer."""
    digest = hashlib.blake2b(f"audit {seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < AUDIT_SHARE * 2**64


def as_stopped(attempt: AttemptRecord, end: Outcome) -> Outcome:
    """The end of an attempt that was asked to stop: ``stopped``, whatever took it away. Any other end is as it was.

    One that was faster keeps its score, and one that crashed on the way its reason.
    """
    if attempt.late_check is None or attempt.late_check.audited or end.kind not in (Kind.CANCELLED, Kind.PREEMPTED):
        return end
    return dataclasses.replace(
        end,
        kind=Kind.STOPPED,
        reason=attempt.late_check.reason,
        metrics={**attempt.last_metrics, **end.metrics},
        phases=end.phases or attempt.phase_seconds,
        error=None,
    )


@dataclasses.dataclass(frozen=True)
class Curve:
    """Training losses, in nats per token, and learning-rate multipliers of one attempt by share of its run."""

    shares: Sequence[float]
    losses: Sequence[float]
    multipliers: Sequence[float]

    @classmethod
    def of(cls, trial: TrialRecord) -> Curve | None:
        """Of its last attempt; None where it has reported nothing, or a report lacks something or is not finite."""
        rows = [
            (share, metrics.get("train/loss", math.nan), metrics.get("train/lr_multiplier", math.nan))
            for share, (_, metrics) in zip(_shares(trial, trial.curve), trial.curve, strict=True)
        ]
        if not rows or not all(math.isfinite(value) for row in rows for value in row):
            return None
        return cls(*zip(*rows, strict=True))

    def features(self, share: float) -> tuple[float, float]:
        """Mean loss and mean multiplier over the stretch that ends at ``share``."""
        grid = numpy.linspace(share - _WINDOW, share, _GRID)
        losses, multipliers = (numpy.interp(grid, self.shares, own) for own in (self.losses, self.multipliers))
        return float(losses.mean()), float(multipliers.mean())


def _shares(trial: TrialRecord, points: Sequence[tuple[int, Mapping[str, float]]]) -> list[float]:
    """Share of the trial's run that was over at each of these points of its curve."""
    stop = StopSettings(steps=trial.setting("stop.steps"), seconds=trial.setting("stop.seconds"))
    return [run_progress(stop, step, metrics.get("elapsed_s", math.nan)) for step, metrics in points]


def _has_just_come(trial: TrialRecord, share: float) -> bool:
    """Whether its last report is the first one at or after ``share`` of the run, and not its end."""
    *before, last = [0.0, *_shares(trial, trial.curve[-2:])]
    return bool(before) and before[-1] < share <= last < 1.0


def _finished(record: StudyRecord, trial: TrialRecord, share: float) -> tuple[tuple[float, float], float, float] | None:
    """Features at ``share``, score before the export, and what the export cost, of a run of the study's fidelity."""
    if trial.bpb is None or trial.role == CONFIRM or not record.is_comparable(trial):
        return None
    assert trial.outcome is not None
    prequant, curve = trial.outcome.metrics.get("bpb/prequant", math.nan), Curve.of(trial)
    if curve is None or not math.isfinite(prequant):
        return None
    return curve.features(share), prequant, trial.bpb - prequant


@dataclasses.dataclass(frozen=True)
class _Prediction:
    """Of one further run: ``mean`` and ``scale`` in the targets' unit, Student's t with ``freedom`` degrees."""

    mean: float
    scale: float
    freedom: int

    def chance_below(self, bar: float) -> float:
        if self.scale == 0.0:
            return float(self.mean < bar)
        return student_above((self.mean - bar) / self.scale, self.freedom)


def _predict(features: numpy.ndarray, targets: numpy.ndarray, own: numpy.ndarray) -> _Prediction:
    """Of a run with features ``own``, shape (2,), from ``features`` of shape (n, 2) and ``targets`` of shape (n,).

    Ordinary least squares with an intercept, and the spread of a new observation around it; a feature that is the same
    in all runs is left out.
    """
    varied = numpy.ptp(features, axis=0) > _SAME
    center = features.mean(axis=0)
    design = numpy.column_stack([numpy.ones(len(features)), (features - center)[:, varied]])
    point = numpy.concatenate([[1.0], (own - center)[varied]])
    inverse = numpy.linalg.pinv(design.T @ design)
    coefficients = inverse @ design.T @ targets
    freedom = len(features) - design.shape[1]
    variance = float(((targets - design @ coefficients) ** 2).sum()) / freedom
    scale = math.sqrt(variance * (1.0 + float(point @ inverse @ point)))
    return _Prediction(float(point @ coefficients), scale, freedom)
