"""A knob's domain cut into a few parts that trials can be counted in: its values, or thirds of its range.

The parts follow from the range alone, never from where trials happen to lie, so that they mean the same in every study
of the space. A range is cut as the sampler sees it: in the logarithm where it is searched so.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from typing import Any

from golfray.config.errors import shown
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, Parameter

# A range with no more single values than this is not cut.
_MOST_VALUES = 6
_PARTS = 3


@dataclasses.dataclass(frozen=True)
class KnobBins:
    """``labels`` name the parts, in units of the setting and in rising order, the zero of ``or_zero`` first."""

    knob: Knob
    labels: tuple[str, ...]
    _values: tuple[Any, ...] | None
    _edges: tuple[float, ...]

    def index(self, value: Any) -> int | None:
        """The part in which this value of the knob lies; None where it lies in none."""
        zero = _has_zero(self.knob)
        if zero and value == 0:
            return 0
        if self._values is not None:
            matches = (own for own, known in enumerate(self._values) if _equal(known, value))
            found = next(matches, None)
            return None if found is None else found + zero
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return bisect.bisect_left(self._edges, value) + zero


def bins_of(knob: Knob) -> KnobBins:
    """The parts of one knob's domain."""
    zero = ("0",) if _has_zero(knob) else ()
    values = _single_values(knob.domain)
    if values is not None:
        return KnobBins(knob, zero + tuple(map(_label, values)), values, ())
    assert not isinstance(knob.domain, Choice)
    edges = _edges(knob.domain, knob.complement)
    ends = [knob.domain.low, *edges, knob.domain.high]
    parts = (f"{_number(low)} .. {_number(high)}" for low, high in itertools.pairwise(ends))
    return KnobBins(knob, zero + tuple(parts), None, edges)


def _has_zero(knob: Knob) -> bool:
    return knob.or_zero and not isinstance(knob.domain, Choice)


def _single_values(domain: Parameter) -> tuple[Any, ...] | None:
    if isinstance(domain, Choice):
        return domain.choices
    if domain.step is None or (isinstance(domain, IntRange) and domain.log and domain.high - domain.low > _MOST_VALUES):
        return None
    count = math.floor((domain.high - domain.low) / domain.step + 1e-8) + 1
    return tuple(domain.low + index * domain.step for index in range(count)) if count <= _MOST_VALUES else None


def _edges(domain: FloatRange | IntRange, complement: bool) -> tuple[float, ...]:
    """Where one part ends and the next begins; a value on an edge belongs to the lower part."""
    low, high = (1 - domain.high, 1 - domain.low) if complement else (domain.low, domain.high)
    if domain.log:
        inner = [low * (high / low) ** (part / _PARTS) for part in range(1, _PARTS)]
    else:
        inner = [low + (high - low) * part / _PARTS for part in range(1, _PARTS)]
    return tuple(sorted(1 - edge for edge in inner)) if complement else tuple(inner)


def _equal(known: Any, value: Any) -> bool:
    if isinstance(known, float) and isinstance(value, float):
        return math.isclose(known, value, rel_tol=1e-9, abs_tol=1e-12)
    return type(known) is type(value) and bool(known == value)


def _label(value: Any) -> str:
    return _number(value) if isinstance(value, int | float) and not isinstance(value, bool) else shown(value).strip('"')


def _number(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
