"""A curve in one line of characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """``values`` as bars from the lowest to the highest, at most ``width`` characters: each the mean of its share.

    Values that are not finite are drawn as "!"; equal values as a line of the lowest bars.
    """
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return "!" * count
    low, span = min(finite), max(finite) - min(finite)

    def bar(mean: float) -> str:
        if not math.isfinite(mean):
            return "!"
        return _BARS[round((mean - low) / span * (len(_BARS) - 1)) if span else 0]

    return "".join(map(bar, means))
