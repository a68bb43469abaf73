"""How well the simulator's law meets the public numbers: every one of them, what the law has, and the residual.

    python benchmarks/simulator_fit.py

docs/simulator.md says what is made of it.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy

from golfray.core.schedule import lr_multiplier
from golfray.sweep.sampler import StudySampler
from golfray.sweep.sim.curve import bpb_after
from golfray.sweep.sim.law import LAPTOP, LAWS, expected_bpb
from golfray.sweep.sim.luck import luck_of
from golfray.sweep.sim.published import LAPTOP_SCORES, SCORES, SIZES, TIMES, Measured, settings_at
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.speed import step_seconds, steps_of
from golfray.sweep.space import load_space

ROOT = Path(__file__).parent.parent
SWEEP = ROOT / "docs" / "laptop_ranges" / "results.csv"
SPACE = ROOT / "search_spaces" / "muon.yaml"

# anchors.md, section 3: rank correlation of a public run's validation at a share of its time with its last one.
PUBLIC_RANKS = {0.2: 0.59, 0.3: 0.78, 0.5: 0.85, 0.7: 0.95, 0.8: 0.97}
POINTS = 300


def show(title: str, numbers: Sequence[Measured]) -> None:
    """One table, and the root mean square of the residuals of the numbers that were fitted."""
    print(f"\n{title}\n{'':46} {'':18} {'public':>9} {'law':>9} {'residual':>9}")
    for number in numbers:
        law = number.foreseen()
        apart = "" if number.fitted else "  not fitted"
        print(f"{number.source:46} {number.what:18} {number.value:9.4f} {law:9.4f} {number.value - law:+9.4f}{apart}")
    residuals = [number.value - number.foreseen() for number in numbers if number.fitted]
    print(f"root mean square of {len(residuals)} fitted residuals: {rms(residuals):.4f}")


def rms(values: Sequence[float]) -> float:
    """Root mean square."""
    return math.sqrt(sum(value * value for value in values) / len(values))


def sweep_residuals() -> list[float]:
    """Residuals of the 24 trials of the sweep behind the laptop's ranges, 250 steps each."""
    residuals = []
    with SWEEP.open(newline="", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            paths = {name: float(value) for name, value in row.items() if "." in name}
            law = expected_bpb(LAPTOP, settings_at(LAPTOP, paths), 250).roundtrip
            residuals.append(float(row["bpb_roundtrip"]) - law)
    return residuals


def early_ranks(scale: str) -> dict[float, float]:
    """Rank correlation of random points' curves with their final scores, by share of the time."""
    law, space = LAWS[scale], load_space(SPACE, has_gpu=scale == "full")
    sampler = StudySampler(space.knobs, kind="random", seed=1, cap_bytes=1, uniform_bpb=1.0)
    final: list[float] = []
    early: dict[float, list[float]] = {share: [] for share in PUBLIC_RANKS}
    for number in range(POINTS):
        settings = space.at(sampler.suggest(number)).config.to_run_settings(0)
        step_s = step_seconds(law, settings, space.base.config.workers)
        steps = steps_of(settings, step_s)
        expected, raw = expected_bpb(law, settings, steps), dataclasses.asdict(settings)
        luck = luck_of(law, Simulation(scale=scale), settings, raw, steps * settings.batch.tokens)
        final.append(expected.prequant + luck.prequant)
        for share, found in early.items():
            step = int(share * steps)
            multiplier = lr_multiplier(settings.schedule, settings.stop, step, step * step_s)
            found.append(bpb_after(law, settings, expected, luck, share, steps, multiplier))
    return {share: spearman(found, final) for share, found in early.items()}


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation of values without ties."""
    ranks = [numpy.argsort(numpy.argsort(values)) for values in (one, other)]
    return float(numpy.corrcoef(*ranks)[0, 1])


def main() -> None:
    """Print everything."""
    show("scores, full", SCORES)
    show("scores, laptop", LAPTOP_SCORES)
    show("sizes", SIZES)
    show("step times", TIMES)
    sweep = sweep_residuals()
    print(f"\n24 trials of docs/laptop_ranges: root mean square {rms(sweep):.4f}, largest {max(map(abs, sweep)):.4f}")
    print(f"\nrank correlation with the final score, {POINTS} random points of muon.yaml")
    print(f"{'share of the time':20}" + "".join(f"{share:8.0%}" for share in PUBLIC_RANKS))
    for name, ranks in {"public": PUBLIC_RANKS, **{scale: early_ranks(scale) for scale in LAWS}}.items():
        print(f"{name:20}" + "".join(f"{ranks[share]:8.2f}" for share in PUBLIC_RANKS))


if __name__ == "__main__":
    main()
