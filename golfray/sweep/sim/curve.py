"""The training loss on the way: what a run looks like before it is over.

A curve is the final value plus what lacks: tokens that were not read yet (the law's own term), a rate that has not
fallen yet, and how much better or worse this configuration looks early than it is. The last is what makes early ranks
wrong: its size is set so that random points of search_spaces/muon.yaml have the rank correlations of 19 public runs
with their final score, .59 at 20 % of the time, .85 at 50 % and .95 at 70 % (anchors.md, section 3);
``python benchmarks/simulator_fit.py`` prints what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from golfray.core.schedule import lr_multiplier, muon_momentum
from golfray.core.settings import RunSettings
from golfray.sweep.sim.law import Expected, Law, undecayed
from golfray.sweep.sim.luck import Luck

_EARLY_POWER = 1.5


def reported_steps(settings: RunSettings, steps: int) -> Iterator[int]:
    """The steps after which a run reports: about ``runtime.log_points`` of them, the last one always."""
    every = max(steps // max(settings.runtime.log_points, 1), 1)
    yield from range(every, steps, every)
    yield steps


def point(
    law: Law, settings: RunSettings, expected: Expected, luck: Luck, *, step: int, steps: int, step_s: float
) -> dict[str, float]:
    """One point of the curve after ``step`` of ``steps`` steps, with the names that a run uses; the loss in nats."""
    elapsed = step * step_s
    multiplier = lr_multiplier(settings.schedule, settings.stop, step, elapsed)
    loss = nats(law, bpb_after(law, settings, expected, luck, step / steps, steps, multiplier))
    return {
        "step": float(step),
        "elapsed_s": elapsed,
        "train/loss": loss,
        "train/lr_multiplier": multiplier,
        "train/muon_momentum": muon_momentum(settings.muon, settings.stop, step, elapsed),
        "train/step_ms": 1000 * step_s,
        "train/tokens_per_s": settings.batch.tokens / step_s,
    }


def bpb_after(
    law: Law, settings: RunSettings, expected: Expected, luck: Luck, share: float, steps: int, multiplier: float
) -> float:
    """Bits per byte of the live weights after a ``share`` of the run, above 0, at a rate of ``multiplier``."""
    tokens = steps * settings.batch.tokens
    missing = law.tokens * (tokens / law.tokens_at) ** -law.tokens_exponent * (share**-law.tokens_exponent - 1)
    falling = undecayed(multiplier) - undecayed(settings.schedule.lr_floor)
    early = law.early * luck.early * (1 - share) ** _EARLY_POWER
    return expected.prequant + luck.prequant + missing + falling + early


def nats(law: Law, bpb: float) -> float:
    """Bits per byte as nats per token of the law's text."""
    return bpb * law.bytes_per_token * math.log(2)
