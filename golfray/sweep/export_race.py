"""Successive halving over settings of different sizes: each round scores fewer settings on more sequences.

A setting is of use if it is the best at or under the cap, or at any other size. So half of the places of each next
round go to the best that may fit, the other half to those nearest to the front, spread over all sizes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy

# What is a little too large fits once its k is turned.
_MAY_FIT = 1.01


@dataclasses.dataclass(frozen=True)
class Round:
    """``sequences`` scored in all by its end; at most ``places`` settings take part."""

    sequences: int
    places: int


def plan_rounds(settings: int, sequences: int, least: int = 16) -> list[Round]:
    """Four rounds: each on two to three times as many sequences with a quarter of the settings, ``least`` at least."""
    shares = (1 / 16, 3 / 16, 1 / 2, 1.0)
    rounds = []
    for number, share in enumerate(shares):
        places = max(settings // 4**number, min(least, settings))
        rounds.append(Round(max(math.ceil(sequences * share), 1), places))
    return rounds


def run_race(
    settings: int,
    rounds: Sequence[Round],
    max_bytes: int,
    size_of: Callable[[int], int],
    score: Callable[[int, int], float],
) -> list[int]:
    """Race the settings 0 .. ``settings`` - 1 and return those that were in the last round, best first at their size.

    ``size_of(setting)``: bytes. ``score(setting, sequences)``: bits per byte on that many first sequences.
    """
    running = list(range(settings))
    for number, this in enumerate(rounds):
        found = [score(setting, this.sequences) for setting in running]
        sizes = [size_of(setting) for setting in running]
        places = rounds[number + 1].places if number + 1 < len(rounds) else len(running)
        kept = survivors(sizes, found, max_bytes, places)
        running = [running[place] for place in kept]
    return running


def survivors(sizes: Sequence[int], scores: Sequence[float], max_bytes: int, places: int) -> list[int]:
    """Which settings go on: half by score among those that may fit, the rest by how far above the front they are.

    The rest come turn by turn from equal spans of the logarithm of the size, so that there is a front at every size.
    """
    may_fit = [place for place in range(len(sizes)) if sizes[place] <= max_bytes * _MAY_FIT]
    best = sorted(may_fit, key=lambda place: (scores[place], sizes[place], place))[: (places + 1) // 2]
    taken, above = set(best), above_front(sizes, scores)
    others = [place for place in range(len(sizes)) if place not in taken]
    spans = span_of([sizes[place] for place in others], places - len(best))
    queues: dict[int, list[int]] = {}
    for place, span in sorted(zip(others, spans, strict=True), key=lambda pair: (above[pair[0]], pair[0])):
        queues.setdefault(span, []).append(place)
    # Spans whose first is nearest to the front begin each turn.
    turns = itertools.zip_longest(*queues.values())
    return (best + [place for turn in turns for place in turn if place is not None])[:places]


def span_of(sizes: Sequence[float], spans: int) -> list[int]:
    """Which of ``spans`` equal spans of the logarithm, from the smallest to the largest, each size lies in."""
    logs = [math.log(max(size, 1.0)) for size in sizes]
    first, width = min(logs, default=0.0), max((max(logs, default=0.0) - min(logs, default=0.0)) / max(spans, 1), 1e-9)
    return [min(int((each - first) / width), max(spans, 1) - 1) for each in logs]


def above_front(sizes: Sequence[int], scores: Sequence[float]) -> numpy.ndarray:
    """How much worse each score is than the best of those that are no larger; 0 on the front."""
    order = sorted(range(len(sizes)), key=lambda place: (sizes[place], scores[place]))
    above, best = numpy.zeros(len(sizes)), math.inf
    for place in order:
        best = min(best, scores[place])
        above[place] = scores[place] - best
    return above
