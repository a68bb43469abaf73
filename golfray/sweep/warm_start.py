"""What a sampler may be told of other people's runs: points of its own space, each with a score that is worth little.

A foreign score is one of another script, another evaluation, another machine, so it is never told as it is. Told is

    score of trial 0 + d * E^2 / (E^2 + v)

where d is the record's score minus that of the stock model over there, v the variance of d, and E the size that effects
of such knobs have. It is the posterior mean of the point's effect under the prior N(0, E^2) and the likelihood
N(d, v). v is the seeds' share, s^2 (1/runs + 1/stock runs), and d^2 on top of it where anything but the knobs differs:
what else is different may be all of d. Hence no such record is told to be better than trial 0 by more than E / 2,
however good it was, and one that is far away counts as evidence of where people went, not of what it gains.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from golfray.config.resolve import resolve
from golfray.config.schema import Config
from golfray.sweep.knobs import Knob, OutOfRange, params_at, walk
from golfray.sweep.observation import Observation, Observations

# Standard deviation over seeds, pooled over 71 degrees of freedom of the public records (parameter_golf.md, 6).
SEED_SD = 0.00077
# What halving all learning rates of the stock model gained, the largest gain by such knobs alone (the same, 7, R05).
EFFECT_SD = 0.0056

# Own trials from which on foreign points are not heard any more. There are more of them than of own trials at first,
# and TPE keeps away from where points lie that are not among the best: simulated studies gained from them early, and
# those that heard them for longer ended behind studies that never did (docs/log.md).
FOREIGN_TRIALS = 8

# How far apart, relative to their size, two values of a knob are that were meant to be the same.
_NEAR = 0.05

# A setting of the run that is said as a share of it or as a number of steps, and which of the two is in force.
_SHARE_OF = {
    "muon.momentum_warmup_steps": "muon.momentum_warmup_share",
    "schedule.warmdown_steps": "schedule.warmdown_share",
}

_STOCK_PRESET, _STOCK_SCALE = "parameter-golf", "full"


@dataclasses.dataclass(frozen=True)
class ForeignPoint:
    """One point of a space at which others ran. ``records`` names them, ``runs`` counts their runs.

    ``values`` has {path: value} of the knobs that are active there. ``difference`` is their score minus the stock
    model's, ``noise`` the standard deviation that it is taken to have; both in bits per byte.
    """

    records: tuple[str, ...]
    values: dict[str, Any]
    difference: float
    noise: float
    runs: int

    def told(self, trial_0_bpb: float) -> float:
        """The score that the sampler is told, in bits per byte, where trial 0 scored ``trial_0_bpb``."""
        return trial_0_bpb + self.difference * EFFECT_SD**2 / (EFFECT_SD**2 + self.noise**2)

    def params(self, knobs: Sequence[Knob]) -> dict[str, Any] | None:
        """The point as the sampler sees it; None where these knobs, which may have changed, have no such point."""
        try:
            values, active = walk(knobs, lambda knob: self.values[knob.path])
            if {knob.path for knob in active} != self.values.keys():
                return None
            return params_at(knobs, values)
        except (KeyError, OutOfRange):
            return None


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The points that a space has of some observations, and lines for a person about those that it has not."""

    points: tuple[ForeignPoint, ...]
    notes: tuple[str, ...]


def warm_start(observations: Observations, knobs: Sequence[Knob], trial_0: Config, searched: Config) -> WarmStart:
    """What the observations say about points of ``knobs``.

    ``trial_0`` is the configuration of trial 0, ``searched`` what every other trial lies over. Nothing is told at
    another scale than the records': rates do not transfer to runs of seconds.
    """
    count = len(observations.records)
    if (trial_0.preset, trial_0.scale) != (_STOCK_PRESET, _STOCK_SCALE):
        here = f"{trial_0.preset} at scale {trial_0.scale}"
        why = "learning rates and schedules of ten minutes on eight GPUs do not transfer"
        return WarmStart((), (f"warm_start: none of {count} foreign observations is used for {here}: {why}",))
    varied = {knob.path for knob in knobs}
    at_point: dict[tuple[tuple[str, Any], ...], list[tuple[Observation, list[str]]]] = {}
    unused: dict[str, list[str]] = {}
    moved = _moved_trial_0(observations, trial_0, varied)
    for record in observations.records:
        try:
            values = _values(record, knobs)
            _refuse_trial_0(values, knobs)
        except (_NotTold, OutOfRange) as error:
            unused.setdefault(_reason(error), []).append(record.id)
            continue
        apart = [*moved, *record.beyond, *_differences(record, searched, varied)]
        at_point.setdefault(tuple(values.items()), []).append((record, apart))
    points = tuple(_point(dict(values), found, observations) for values, found in at_point.items())
    used = sum(len(point.records) for point in points)
    told = f"{used} of {count} foreign observations tell the sampler of {len(points)} points"
    notes = [f"warm_start: {told}, for {FOREIGN_TRIALS} trials from trial 0's score on; never best, in no claim"]
    notes += [f"warm_start: not used: {', '.join(names)}: {reason}" for reason, names in unused.items()]
    return WarmStart(points, tuple(notes))


class _NotTold(Exception):
    """A record that tells nothing about the knobs."""


def _values(record: Observation, knobs: Sequence[Knob]) -> dict[str, Any]:
    """{path: value} of the active knobs at the record's point; raises where it has none."""

    def value_of(knob: Knob) -> Any:
        if knob.path not in record.settings:
            raise _NotTold(f"{knob.path} is not told")
        return record.settings[knob.path]

    values, active = walk(knobs, value_of)
    params_at(knobs, values)
    return {knob.path: values[knob.path] for knob in active}


def _refuse_trial_0(values: Mapping[str, Any], knobs: Sequence[Knob]) -> None:
    """What scored otherwise at trial 0's own point did so for other reasons than the knobs, and trial 0 is run here."""
    own = {knob.path: knob.preset_value for knob in knobs if knob.path in values}
    if all(_near(values[path], preset) for path, preset in own.items()):
        raise _NotTold("all knobs as in trial 0, which is run here")


def _near(value: Any, preset: Any) -> bool:
    """Whether two values are one: a share of the run depends on how fast the machine was."""
    if isinstance(value, float) and isinstance(preset, float):
        return math.isclose(value, preset, rel_tol=_NEAR)
    return bool(value == preset)


def _reason(error: Exception) -> str:
    """Why a record is not used, without its own value, so that records with the same reason share a line."""
    text = str(error)
    path, outside, domain = text.partition(" is outside ")
    return f"{path.partition('=')[0]} outside {domain}" if outside else text.partition("=")[0]


def _moved_trial_0(observations: Observations, trial_0: Config, varied: Collection[str]) -> list[str]:
    """Settings, no knobs, in which trial 0 is not the model that the stock score is of."""
    stock = resolve(_STOCK_PRESET, _STOCK_SCALE, has_gpu=False).config
    paths = {path: None for record in observations.records for path in record.settings if path not in varied}
    return [f"trial 0: {path}" for path in paths if not _same(stock.value(path), trial_0.value(path))]


def _differences(record: Observation, config: Config, varied: Collection[str]) -> list[str]:
    """Paths, no knobs, at which the record ran with something else than ``config`` says."""
    return [
        path
        for path, value in record.settings.items()
        if path not in varied
        and _in_force(path, record.settings, config, varied)
        and not _same(value, config.value(path))
    ]


def _in_force(path: str, settings: Mapping[str, Any], config: Config, varied: Collection[str]) -> bool:
    """Whether a path decides anything: of a share and a number of steps only one does."""
    for steps, share in _SHARE_OF.items():
        if path == steps:
            return share not in varied and config.value(share) is None
        if path == share:
            return config.value(share) is not None or steps not in settings
    return True


def _same(value: Any, own: Any) -> bool:
    if isinstance(own, float) and isinstance(value, float):
        return math.isclose(own, value, rel_tol=1e-6, abs_tol=1e-12)
    return bool(own == value)


def _point(
    values: dict[str, Any], found: Sequence[tuple[Observation, list[str]]], observations: Observations
) -> ForeignPoint:
    """All records at one point: those from which nothing else differs, where there are any, else all of them."""
    alike = [entry for entry in found if not entry[1]] or list(found)
    runs = sum(record.runs for record, _ in alike)
    mean = sum(record.bpb * record.runs for record, _ in alike) / runs
    difference = mean - observations.stock_bpb
    seeds = SEED_SD**2 * (1 / runs + 1 / observations.stock_runs)
    # More records do not average out what all of them have besides the knobs.
    other = difference**2 if alike[0][1] else 0.0
    names = tuple(record.id for record, _ in alike)
    return ForeignPoint(names, values, difference, math.sqrt(seeds + other), runs)
