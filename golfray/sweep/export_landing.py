"""A monotone knob turned until the size lies just below a cap: k of every class that is clipped at deviations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from golfray.core.settings import ExportSettings
from golfray.sweep.export_space import CLASSES

# How near below the cap is near enough, as a share of it.
CLOSE = 0.002
_LONGEST = 8


def knobs(export: ExportSettings) -> tuple[str, ...]:
    """The classes whose k changes the size: those that have integers and are clipped at deviations."""
    return tuple(
        kind for kind in CLASSES if getattr(export, f"clip_{kind}") == "std" and getattr(export, f"bits_{kind}") <= 8
    )


def turned(export: ExportSettings, kinds: tuple[str, ...], factor: float) -> ExportSettings:
    """The same export with k of some classes times ``factor``: wider steps, fewer bytes."""
    return dataclasses.replace(
        export, **{f"clip_k_{kind}": getattr(export, f"clip_k_{kind}") * factor for kind in kinds}
    )


def land_below(size_of: Callable[[float], int], cap: int, start: int, slope: float) -> tuple[float, int] | None:
    """The factor whose size is the largest found at or under ``cap``, and that size; None where none is under it.

    ``start``: size at factor 1. ``slope``: bytes that doubling the factor saves, roughly; it only makes the first step.
    Ends within :data:`CLOSE` below the cap, or after 8 sizes: a codec's size may jump over the window.
    """
    # Sides in log2 of the factor: at ``low`` the size is above the cap, at ``high`` not.
    low: tuple[float, int] | None = None
    high: tuple[float, int] | None = None
    place, size, stride = 0.0, start, max(slope, 1.0)
    aim = cap * (1 - CLOSE / 2)
    for _ in range(_LONGEST):
        if size > cap:
            low = (place, size)
        elif high is None or size >= high[1]:
            high = (place, size)
        if high is not None and high[1] >= cap * (1 - CLOSE):
            break
        if low is not None and high is not None:
            if abs(high[0] - low[0]) < 1e-7:
                break
            share = (low[1] - aim) / max(low[1] - high[1], 1)
            # Never so near to an end that nothing is learned.
            place = low[0] + (high[0] - low[0]) * min(max(share, 0.05), 0.95)
        else:
            step = (size - aim) / stride
            place += math.copysign(min(max(abs(step), 0.002), 2.0), step)
            stride /= 1.5
        size = size_of(2.0**place)
    return None if high is None else (2.0 ** high[0], high[1])
