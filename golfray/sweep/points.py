"""Points that a study runs whatever the sampler thinks: the preset, the preset at 8 bits, first points, replicates.

Each is the preset with some settings changed. The sampler is told of one where it is a point of the space; where it is
not, the trial runs all the same and says why the sampler does not hear of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from golfray.config.resolve import Resolved
from golfray.sweep.knobs import OutOfRange, params_at
from golfray.sweep.space import Space
from golfray.sweep.trial_record import FIRST_POINT, PRESET, PRESET_8BIT, REPLICATE

_SEED = "runtime.seed"


@dataclasses.dataclass(frozen=True)
class Point:
    """A configuration to run. ``params`` is where the sampler would place it, empty where it has no such point."""

    role: str
    resolved: Resolved
    params: dict[str, Any]
    told: bool
    told_reason: str | None = None
    replicate_of: int | None = None


def planned_points(space: Space) -> list[Point]:
    """All such points in the order in which they are run: trial 0 first.

    Trial 0 is the preset itself, so what the knobs imply (no scale floor where bits vary) does not apply to it; the
    sampler is told of it only where that changes nothing. The 8-bit point is left out where it is trial 0 over again.
    Replicates are trial 0 on seeds counted up from its own. The budget's number of trials cuts the others off, never
    the replicates.
    """
    preset = _point(space, PRESET, space.base, {})
    points = [preset]
    if space.bits_knobs:
        at_8_bits = dict.fromkeys(space.bits_knobs, 8)
        eight = _point(space, PRESET_8BIT, space.searched().with_values(at_8_bits, "8 bits"), at_8_bits)
        if eight.resolved.config != preset.resolved.config:
            points.append(eight)
    for number, changes in enumerate(space.first_points):
        resolved = space.searched().with_values(changes, f"first_points.{number}")
        points.append(_point(space, FIRST_POINT, resolved, changes))
    return points[: space.budget.trials] + _replicates(space, preset)


def _replicates(space: Space, preset: Point) -> list[Point]:
    seed = space.base.config.runtime.seed
    return [
        Point(
            role=REPLICATE,
            resolved=space.base.with_values({_SEED: seed + number}, "replicate"),
            params=preset.params,
            told=False,
            told_reason="a replicate measures noise: the sampler hears of a point on one seed only",
            replicate_of=0,
        )
        for number in range(1, space.replicates)
    ]


def _point(space: Space, role: str, resolved: Resolved, changes: Mapping[str, Any]) -> Point:
    values = {knob.path: changes.get(knob.path, knob.preset_value) for knob in space.knobs}
    try:
        params = params_at(space.knobs, values)
    except OutOfRange as error:
        return Point(role, resolved, {}, told=False, told_reason=str(error))
    for path, value in space.implied.items():
        own = resolved.config.value(path)
        if not math.isclose(own, value, rel_tol=1e-12):
            reason = f"{path} is {own:g} here and {value:g} wherever the sampler searches"
            return Point(role, resolved, params, told=False, told_reason=reason)
    return Point(role, resolved, params, told=True)
