"""Knobs: how a value of the configuration becomes what the sampler searches over, and back.

The sampler sees *parameters*, one or two a knob; the configuration sees the knob's *value*. A knob whose conditions do
not hold is inactive: it has no parameter at that point, and its setting stays as the preset has it. Everything here is
pure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from golfray.config.errors import shown

# Slack of a float range's ends, relative: 1 - 0.995 is a rounding away from 0.005.
_REL_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class FloatRange:
    """Every number in [low, high], or every low + i * step; ``log``: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def contains(self, value: Any) -> bool:
        """Whether the sampler may be told of ``value``."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        steps = (value - self.low) / self.step
        return math.isclose(steps, round(steps), abs_tol=1e-8)

    def settle(self, value: float) -> float:
        """``value``, or the end of the range that it misses by no more than rounding."""
        if self.low <= value <= self.high:
            return value
        for end in (self.low, self.high):
            if math.isclose(value, end, rel_tol=_REL_TOLERANCE):
                return end
        return value

    @property
    def middle(self) -> float:
        """The value halfway, in the logarithm where ``log`` is set."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return middle if self.step is None else self.low + self.step * round((middle - self.low) / self.step)


@dataclasses.dataclass(frozen=True)
class IntRange:
    """Every integer low, low + step, ... up to high; ``log``: uniform in the logarithm (step 1)."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def contains(self, value: Any) -> bool:
        """Whether the sampler may be told of ``value``."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high and (value - self.low) % self.step == 0

    @property
    def middle(self) -> int:
        """The value halfway, in the logarithm where ``log`` is set."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return self.low + self.step * int((middle - self.low) // self.step)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few values without an order."""

    choices: tuple[Any, ...]

    def contains(self, value: Any) -> bool:
        """Whether the sampler may be told of ``value``; types count: 1, 1.0 and true are three values."""
        return any(type(value) is type(choice) and value == choice for choice in self.choices)


Parameter = FloatRange | IntRange | Choice


class OutOfRange(ValueError):
    """A value that a knob's range does not hold; the message names the knob, the value and the range."""


class CircularConditions(ValueError):
    """Knobs whose conditions depend on each other; ``paths`` goes once around, its first path repeated at the end."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(" depends on ".join(paths))
        self.paths = tuple(paths)


@dataclasses.dataclass(frozen=True)
class Condition:
    """Holds where the knob at ``path`` has one of ``values``: the value that a trial runs with, searched or not."""

    path: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is one of the values."""
        return any(_same(value, allowed) for allowed in self.values)

    def __str__(self) -> str:
        return f"{self.path} is {' or '.join(map(plain, self.values))}"


@dataclasses.dataclass(frozen=True)
class Knob:
    """One knob of a space at one scale.

    ``domain`` is in units of the configuration. ``complement``: the sampler sees 1 - value (for momenta and decays,
    where the distance from 1 is what matters). ``or_zero``: 0 is one more possibility beside the domain.
    ``at_most``: path of the knob whose value bounds this one's. ``preset_value`` is what the preset amounts to.
    ``when``: the knob is searched only where all of these hold.
    """

    path: str
    domain: Parameter
    complement: bool = False
    or_zero: bool = False
    at_most: str | None = None
    preset_value: Any = None
    when: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """The main parameter's name: what the sampler's number means."""
        return f"1 - {self.path}" if self.complement else self.path

    @property
    def switch(self) -> str:
        """The name of the parameter that decides between zero (false) and the domain (true)."""
        return f"{self.path} > 0"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """What the sampler searches over for this knob."""
        searched = self._searched
        return {self.name: searched, self.switch: Choice((False, True))} if self.or_zero else {self.name: searched}

    def is_active(self, values: Mapping[str, Any]) -> bool:
        """Whether the knob is searched where the knobs that it depends on have these values, {path: value}."""
        return all(condition.holds(values[condition.path]) for condition in self.when)

    def can_be(self, value: Any) -> bool:
        """Whether a trial may have just this value here: not where it would be one of infinitely many numbers."""
        if self.or_zero and value == 0 and not isinstance(self.domain, Choice):
            return True
        if self.when and self.is_preset(value):
            return True
        return self.is_countable and self.domain.contains(value)

    def is_preset(self, value: Any) -> bool:
        """Whether ``value`` is what the preset amounts to."""
        return _same(value, self.preset_value)

    @property
    def is_countable(self) -> bool:
        """Whether the domain has single values rather than all the numbers between two ends."""
        return not isinstance(self.domain, FloatRange) or self.domain.step is not None

    def value(self, params: Mapping[str, Any]) -> Any:
        """The knob's own value at a point of the sampler, before ``at_most``."""
        if self.or_zero and not params[self.switch]:
            return 0 if isinstance(self.domain, IntRange) else 0.0
        if self.complement:
            assert isinstance(self.domain, FloatRange)
            return min(max(1.0 - params[self.name], self.domain.low), self.domain.high)
        return params[self.name]

    def params(self, value: Any) -> dict[str, Any]:
        """The point of the sampler at which the knob has ``value``. Raises :class:`OutOfRange` where there is none.

        Where the value is the zero beside the domain, the parameter that then decides nothing stands at the middle.
        """
        if self.or_zero and value == 0 and not isinstance(self.domain, Choice):
            return {self.name: self.domain.middle, self.switch: False}
        searched = self._searched
        point = value
        if isinstance(searched, FloatRange) and isinstance(value, int | float) and not isinstance(value, bool):
            point = searched.settle(1.0 - value if self.complement else float(value))
        if not searched.contains(point):
            raise OutOfRange(f"{self.path}={value!r} is outside {self.describe()}")
        return {self.name: point, self.switch: True} if self.or_zero else {self.name: point}

    def describe(self) -> str:
        """The domain as a person would write it, and when it is searched."""
        where = f" where {' and '.join(map(str, self.when))}" if self.when else ""
        return f"{self.domain_words}{where}"

    @property
    def domain_words(self) -> str:
        """The domain as a person would write it."""
        if isinstance(self.domain, Choice):
            return f"{list(self.domain.choices)}"
        zero = "0 or " if self.or_zero else ""
        log = f" (log{' of 1 - value' if self.complement else ''})" if self.domain.log else ""
        step = f" by {self.domain.step:g}" if self.domain.step not in (None, 1) else ""
        bound = f" and at most {self.at_most}" if self.at_most else ""
        return f"{zero}{self.domain.low:g}..{self.domain.high:g}{step}{log}{bound}"

    @property
    def _searched(self) -> Parameter:
        if not self.complement:
            return self.domain
        assert isinstance(self.domain, FloatRange)
        return FloatRange(1.0 - self.domain.high, 1.0 - self.domain.low, self.domain.log)


def parameters_of(knobs: Iterable[Knob]) -> dict[str, Parameter]:
    """Everything that the sampler may search over, in the order of the knobs; inactive knobs leave theirs out."""
    return {name: parameter for knob in knobs for name, parameter in knob.parameters.items()}


def dependency_order(knobs: Iterable[Knob]) -> list[Knob]:
    """The knobs with every one after those that its conditions name, and else in the order given.

    Raises :class:`CircularConditions` where there is no such order, ``KeyError`` where a condition names no knob.
    """
    by_path = {knob.path: knob for knob in knobs}
    ordered: dict[str, Knob] = {}

    def visit(knob: Knob, above: tuple[str, ...]) -> None:
        if knob.path in above:
            raise CircularConditions((*above[above.index(knob.path) :], knob.path))
        if knob.path not in ordered:
            for condition in knob.when:
                visit(by_path[condition.path], (*above, knob.path))
            ordered[knob.path] = knob

    for knob in by_path.values():
        visit(knob, ())
    return list(ordered.values())


def walk(knobs: Iterable[Knob], value_of: Callable[[Knob], Any]) -> tuple[dict[str, Any], list[Knob]]:
    """Values of all knobs before ``at_most``, {path: value}, and those that are active; both in dependency order.

    ``value_of`` is asked for active knobs only, each after the knobs that it depends on; the others have the preset's.
    """
    values: dict[str, Any] = {}
    active = []
    for knob in dependency_order(knobs):
        if knob.is_active(values):
            active.append(knob)
            values[knob.path] = value_of(knob)
        else:
            values[knob.path] = knob.preset_value
    return values, active


def values_at(knobs: Iterable[Knob], params: Mapping[str, Any]) -> dict[str, Any]:
    """{path: value} of the active knobs at a point of the sampler, as the configuration takes it: ``at_most`` applied.

    The bound of a knob that is inactive itself is its preset value.
    """
    own, active = walk(knobs, lambda knob: knob.value(params))
    return {knob.path: min(own[knob.path], own[knob.at_most]) if knob.at_most else own[knob.path] for knob in active}


def params_at(knobs: Iterable[Knob], values: Mapping[str, Any]) -> dict[str, Any]:
    """The point of the sampler at which every knob has the given value.

    Raises :class:`OutOfRange` where a value is outside its range, above the value that bounds it, or not the preset's
    although the knob is inactive.
    """
    knobs = list(knobs)
    _, active = walk(knobs, lambda knob: values[knob.path])
    params: dict[str, Any] = {}
    for knob in knobs:
        value = values[knob.path]
        if knob not in active:
            if not knob.is_preset(value):
                where = " and ".join(map(str, knob.when))
                raise OutOfRange(f"{knob.path}={value!r} is set, and it is searched only where {where}")
            continue
        if knob.at_most and value > values[knob.at_most]:
            raise OutOfRange(f"{knob.path}={value!r} is above {knob.at_most}={values[knob.at_most]!r}")
        params.update(knob.params(value))
    return params


def _same(value: Any, other: Any) -> bool:
    """Equality of two values of one setting; steps of a range of numbers are a rounding away from what was written."""
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=_REL_TOLERANCE, abs_tol=1e-12)
    return type(value) is type(other) and bool(value == other)


def plain(value: Any) -> str:
    """A value within a sentence: text without quotes."""
    return value if isinstance(value, str) else shown(value)
