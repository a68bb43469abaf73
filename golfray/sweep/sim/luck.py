"""Chance, always the same for the same seed: noise of scores, bytes and step times, and what goes wrong.

A draw depends on the simulation's seed and on a key alone, never on order, process or lane. What decides a score is
keyed by the configuration and its seed, so that it is the same on every attempt at it; what goes wrong is keyed by the
attempt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

from golfray.core.settings import RunSettings
from golfray.sweep.sim.law import Law
from golfray.sweep.sim.simulation import Simulation

# What decides no score: where the data lie and how large the packed script is.
_NO_PART = ("data", "bytes_code")

# Section 6: within a configuration the live weights' deviation correlates .92 with the final score's, slope 1.03, so
# that of a final SD of .00077 this share comes with the export.
_LIVE_SHARE = 0.92
_EXPORT_SHARE = (1 - 0.92**2) ** 0.5

# Section 6, "total-bytes spread" of 3 to 4 seeds over 1.7 to 2.1 (the expected range in SDs): 10 kB of int8 with zlib
# (R02), 50 to 160 kB of 5 and 6 bits by row maximum (R15, R16, R18), 1 to 7 kB under k*std (R29 to R45).
_BYTES_SD = {"int8": 0.0007, "rows": 0.006, "kstd": 0.0003}

# anchors.md, section 3: the relative range of step times across seeds has a median of .2 % and a 90th percentile of
# 2.5 %; three values have a range of 1.7 SD, and one node in ten is slow by as much.
_STEP_SD = 0.0012
_ODD_NODE = 0.1
_ODD_NODE_SD = 0.015


@dataclasses.dataclass(frozen=True)
class Luck:
    """What chance adds to one configuration on one seed: bits per byte before and by the export, shares, curve.

    ``prequant`` and ``export`` in bits per byte, ``bytes`` and ``step`` as factors, ``early`` a standard normal value:
    how much better or worse it looks before its end than it is. ``broken``: it crashes whenever it is tried.
    """

    prequant: float
    export: float
    bytes: float
    step: float
    early: float
    broken: bool
    limit: float


@dataclasses.dataclass(frozen=True)
class Mishap:
    """What happens to an attempt: "crash", "preempt" or "hang", at this share of its seconds."""

    kind: str
    at: float


def luck_of(law: Law, simulation: Simulation, settings: RunSettings, raw: Mapping[str, Any], tokens: float) -> Luck:
    """The luck of a configuration; ``raw`` is the dictionary form of ``settings``."""
    own = {name: value for name, value in raw.items() if name not in _NO_PART}
    draw = _draw(simulation.seed, json.dumps(own, sort_keys=True))
    sd = law.noise * (law.tokens_at / max(tokens, 1.0)) ** law.noise_exponent
    live, own_export = draw.gauss(0, 1), draw.gauss(0, 1)
    step = _step_factor(draw)
    return Luck(
        prequant=sd * _LIVE_SHARE * live,
        export=sd * _EXPORT_SHARE * own_export,
        bytes=1 + _bytes_sd(settings) * draw.gauss(0, 1),
        step=step,
        early=draw.gauss(0, 1),
        broken=draw.random() < simulation.broken,
        # Where exactly a rate is too high differs from seed to seed.
        limit=simulation.diverge_ratio * 2 ** draw.gauss(0, 0.1),
    )


def step_factors(count: int) -> list[float]:
    """How many times as long as usual a step takes, on so many occasions; always the same ones."""
    return [_step_factor(_draw(0, f"step {number}")) for number in range(count)]


def mishap_of(simulation: Simulation, job_id: str) -> Mishap | None:
    """What happens to one attempt; None: nothing."""
    draw = _draw(simulation.seed, f"attempt {job_id}")
    chance, at = draw.random(), draw.random()
    for kind in ("crash", "preempt", "hang"):
        chance -= getattr(simulation, kind)
        if chance < 0:
            return Mishap(kind, at)
    return None


def lane_factor(simulation: Simulation, lane: str) -> float:
    """How many times as long steps take on a lane."""
    slow = _draw(simulation.seed, f"lane {lane}").random() < simulation.slow
    return simulation.slow_factor if slow else 1.0


def _step_factor(draw: random.Random) -> float:
    step = draw.gauss(0, _ODD_NODE_SD if draw.random() < _ODD_NODE else _STEP_SD)
    # A node can be slow by much and fast by little.
    return 1 + (abs(step) if abs(step) > 3 * _STEP_SD else step)


def _bytes_sd(settings: RunSettings) -> float:
    export = settings.export
    if "std" in (export.clip_attention, export.clip_mlp):
        return _BYTES_SD["kstd"]
    return _BYTES_SD["int8" if min(export.bits_attention, export.bits_mlp) > 6 else "rows"]


def _draw(seed: int, key: str) -> random.Random:
    digest = hashlib.blake2b(f"{seed} {key}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))
