"""What a difference between scores is worth: seed noise, and the luck of picking the best of many.

All scores are in bits per byte, lower is better.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from golfray.sweep.choosing import Choice, choose
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import TrialRecord

# Share of trial 0's steps: a difference above it is said beside the claim.
STEPS_APART = 0.1


@dataclasses.dataclass(frozen=True)
class SeedNoise:
    """Spread of one configuration over seeds at one fidelity.

    ``sd`` is the sample standard deviation in bits per byte (divisor n - 1), None where fewer than two seeds were
    scored; ``runs`` is n.
    """

    sd: float | None
    runs: int

    @property
    def known(self) -> bool:
        """Whether anything measured may be compared with it; equal scores on all seeds measure nothing."""
        return self.sd is not None and self.sd > 0

    def __str__(self) -> str:
        if self.sd is None:
            return "noise unknown"
        return f"{self.sd:.4f} BPB (SD over {self.runs} seeds)"


@dataclasses.dataclass(frozen=True)
class Claim:
    """The best feasible trial beside trial 0, and what chance alone would explain.

    ``choice`` is all that it was chosen from. ``difference`` is its mean over the seeds of the search minus the mean of
    trial 0 over its ``noise.runs`` seeds (negative: better), None where trial 0 has no score.
    ``in_noise_units`` is that difference divided by the seed noise. ``candidates`` is the number K of configurations of
    which the best was taken, ``expected_luck`` how far below their mean the best of K equal trials lies. Both need the
    noise and are None without it. ``best_steps`` are the optimizer steps of the best trial, ``reference_steps`` their
    mean over trial 0's runs, None where a run does not say how many it made: a run that stops by the clock makes fewer
    on a busy machine, which is no merit of the settings.
    """

    choice: Choice
    reference_bpb: float | None
    difference: float | None
    noise: SeedNoise
    in_noise_units: float | None
    candidates: int
    expected_luck: float | None
    best_steps: float | None
    reference_steps: float | None

    @property
    def best(self) -> TrialRecord | None:
        """The trial that stands for the best configuration; None where nothing fits."""
        return None if self.choice.best is None else self.choice.best.trial

    @property
    def steps_differ(self) -> bool:
        """Whether the two sides of the difference trained for numbers of steps more than a tenth apart."""
        if self.best_steps is None or self.reference_steps is None:
            return False
        return abs(self.best_steps - self.reference_steps) > STEPS_APART * self.reference_steps


def seed_noise(scores: Sequence[float]) -> SeedNoise:
    """Noise from scores of one configuration on different seeds."""
    return SeedNoise(statistics.stdev(scores) if len(scores) >= 2 else None, len(scores))


def expected_best_of(k: int) -> float:
    """Expectation of the largest of ``k`` independent standard normal values.

    E[max] is the integral over x > 0 of 1 - F(x) - F(-x) with F = Phi^k (integration by parts), by Simpson's rule;
    beyond x = 12 the integrand is below 1e-32 * k. Raises ``ValueError`` where ``k`` < 1.
    """
    if k < 1:
        raise ValueError(f"k >= 1 must hold, got k={k}")
    intervals, upper = 4096, 12.0

    def integrand(x: float) -> float:
        tail = 0.5 * math.erfc(x / math.sqrt(2))
        # expm1 and log1p keep 1 - (1 - tail)^k exact where the tail is tiny.
        return -math.expm1(k * math.log1p(-tail)) - tail**k

    step = upper / intervals
    weighted = (integrand(i * step) * (1 if i in (0, intervals) else 4 if i % 2 else 2) for i in range(intervals + 1))
    return math.fsum(weighted) * step / 3


def expected_luck(noise: SeedNoise, k: int) -> float | None:
    """Bits per byte by which the best of ``k`` equal trials beats their mean; None where the noise is unknown."""
    if noise.sd is None or k < 1:
        return None
    return noise.sd * expected_best_of(k)


def reference_runs(record: StudyRecord) -> list[TrialRecord]:
    """Trial 0 and all that repeats it, scored at the study's fidelity, over-cap runs included, by trial number.

    A run that does not fit is no candidate, but its spread over seeds is as good a measure of noise.
    """
    runs = [trial for trial in record.trials if trial.number == 0 or trial.replicate_of == 0]
    return [trial for trial in runs if trial.bpb is not None and record.is_comparable(trial)]


def _mean_steps(runs: Sequence[TrialRecord]) -> float | None:
    steps = [run.outcome.metrics.get("train/steps") for run in runs if run.outcome is not None]
    known = [count for count in steps if count is not None]
    return statistics.fmean(known) if known and len(known) == len(runs) else None


def claim(record: StudyRecord) -> Claim:
    """What the study may say about its best trial. Uses :func:`golfray.sweep.choosing.choose`."""
    runs = reference_runs(record)
    scores = [run.bpb for run in runs if run.bpb is not None]
    noise = seed_noise(scores)
    reference = statistics.fmean(scores) if scores else None
    choice = choose(record)
    best = choice.best
    difference = None if best is None or reference is None else best.mean - reference
    candidates = len(choice.standings)
    return Claim(
        choice=choice,
        reference_bpb=reference,
        difference=difference,
        noise=noise,
        in_noise_units=difference / noise.sd if difference is not None and noise.known and noise.sd else None,
        candidates=candidates,
        expected_luck=expected_luck(noise, candidates),
        best_steps=None if best is None else _mean_steps([best.trial]),
        reference_steps=_mean_steps(runs),
    )
