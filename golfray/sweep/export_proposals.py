"""Which combinations are worth racing: classes are tried alone first, and what they cost alone is added up.

Rounding errors of different classes hardly meet, so the loss that a combination adds is close to the sum of what its
classes add by themselves, and its bytes are the sum of theirs. That ranks all combinations for the price of a few dozen
scores; the race then scores the best of them as they are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy

from golfray.core.settings import ExportSettings
from golfray.sweep.export_race import above_front, span_of
from golfray.sweep.export_space import CLASSES, Choice, ExportSpace, class_choices
from golfray.sweep.export_tensors import NotStorable

# Choices of a class that are combined, the best at their size; more of them hardly differ from each other.
_KEPT = 12
_NEAR = (0.8, 1.1)
_BIN_PLACES = 4


@dataclasses.dataclass(frozen=True)
class Probe:
    """One choice for one class, the others floating point: its bytes by entropy, and bits per byte that it adds."""

    choice: Choice
    bytes: float
    added: float


def propose(
    base: ExportSettings,
    space: ExportSpace,
    wanted: int,
    max_bytes: int,
    probe: Callable[[str, ExportSettings], tuple[float, float]],
) -> list[ExportSettings]:
    """``wanted`` combinations, or all where there are fewer, half of them near ``max_bytes`` and half over all sizes.

    ``probe(class, export)``: bytes of the class, and bits per byte with only it quantized. A choice for which it raises
    :class:`NotStorable` is left out; that is raised where none is left of a class under any variant.
    """
    refused: list[NotStorable] = []
    combined: list[ExportSettings] = []
    sizes: list[float] = []
    scores: list[float] = []
    for variant in space.variants():
        probes = [_probe_class(base, space, kind, variant, probe, refused) for kind in CLASSES]
        for parts in itertools.product(*probes):
            changes = {key: value for part in parts for key, value in part.choice.items()}
            combined.append(dataclasses.replace(base, **{**variant, **changes}))  # type: ignore[arg-type]
            sizes.append(sum(part.bytes for part in parts))
            scores.append(sum(part.added for part in parts))
    if not combined:
        raise refused[0]
    chosen = choose_combinations(sizes, scores, max_bytes, wanted)
    return list(dict.fromkeys(combined[place] for place in chosen))


def choose_combinations(sizes: list[float], scores: list[float], max_bytes: int, wanted: int) -> list[int]:
    """Places of the best at their size: half near the cap, the rest the same number in each span of sizes.

    Where the cap is beyond all sizes, the nearest of these stands for it: what is large scores best, where it fits.
    """
    max_bytes = round(min(max(max_bytes, min(sizes)), max(sizes)))
    wanted = min(wanted, len(sizes))
    whole = [round(size) for size in sizes]
    above = above_front(whole, scores)
    low, high = (share * max_bytes for share in _NEAR)

    def rank(place: int) -> tuple[float, int]:
        return float(above[place]), place

    near = sorted((place for place in range(len(sizes)) if low <= sizes[place] <= high), key=rank)
    chosen = dict.fromkeys(near[: (wanted + 1) // 2])
    spans = max(wanted // 2 // _BIN_PLACES, 1)
    bins = numpy.array(span_of(sizes, spans))
    # Turn by turn from each span, so that what one has not is another's.
    queues = [sorted(numpy.flatnonzero(bins == span).tolist(), key=rank) for span in range(spans)]
    for turn in itertools.zip_longest(*queues):
        for place in turn:
            if place is not None and len(chosen) < wanted:
                chosen[place] = None
    return list(chosen)


def _probe_class(
    base: ExportSettings,
    space: ExportSpace,
    kind: str,
    variant: Choice,
    probe: Callable[[str, ExportSettings], tuple[float, float]],
    refused: list[NotStorable],
) -> list[Probe]:
    found = []
    for choice in class_choices(space, kind, variant):
        try:
            size, added = probe(kind, dataclasses.replace(base, **{**variant, **choice}))  # type: ignore[arg-type]
        except NotStorable as error:
            refused.append(error)
            continue
        found.append(Probe(choice, size, added))
    above = above_front([round(each.bytes) for each in found], [each.added for each in found])
    best = sorted(range(len(found)), key=lambda place: (float(above[place]), place))[:_KEPT]
    return [found[place] for place in sorted(best)]
