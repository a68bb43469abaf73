"""Comparing what was computed with what a vector file expects, by the tolerances that the file itself names."""

import dataclasses
import math
from typing import Any

from golfray.selftest.errors import SelftestError


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far a value may be off: relative to the expected one, absolutely, by the larger of both, or not at all."""

    rel: float | None = None
    abs: float | None = None

    def judge(self, got: Any, expected: Any) -> tuple[float, float, str]:
        """Error, what it may be, and the measure both are in ("exact", "rel" or "abs"); inf where nothing compares."""
        if not (is_number(got) and is_number(expected)):
            same = type(got) is type(expected) and got == expected
            return (0.0 if same else math.inf), 0.0, "exact"
        error = 0.0 if got == expected else abs(got - expected)
        if math.isnan(error):
            error = math.inf
        if self.rel is None and self.abs is None:
            return error, 0.0, "exact"
        if self.abs is None:
            assert self.rel is not None
            relative = error / abs(expected) if expected else (math.inf if error else 0.0)
            return relative, self.rel, "rel"
        return error, max(self.abs, (self.rel or 0.0) * abs(expected)), "abs"


@dataclasses.dataclass(frozen=True)
class PositionTolerance:
    """A tolerance that depends on the position in a list: ``parts`` are (first positions it covers, tolerance)."""

    parts: tuple[tuple[float, Tolerance], ...]

    def at(self, index: int, where: str) -> Tolerance:
        """The tolerance of one position. Raises ``SelftestError`` where no part covers it."""
        for covered, tolerance in self.parts:
            if index < covered:
                return tolerance
        raise SelftestError(f'{where}: tol says nothing about position {index}; add a part with "rest": true')


@dataclasses.dataclass(frozen=True)
class Deviation:
    """One compared value: where it lies in the case, how far it is off, and what it may be off."""

    field: str
    error: float
    tolerance: float
    measure: str
    got: Any
    expected: Any

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def share(self) -> float:
        """Error as a share of the tolerance, which is what makes deviations of several fields comparable."""
        if self.error == 0.0:
            return 0.0
        return self.error / self.tolerance if self.tolerance else math.inf


def parse_tolerance(form: Any, where: str) -> Tolerance | PositionTolerance:
    """Read one tolerance of a file: "exact", {"rel": x}, {"abs": x}, both, or a list of parts for positions.

    A part is such an object with "first": n (positions below n) or "rest": true. Raises ``SelftestError`` naming the
    place for any other form.
    """
    if form == "exact":
        return Tolerance()
    if isinstance(form, dict) and form and set(form) <= {"rel", "abs"}:
        for name, value in form.items():
            if not is_number(value) or not 0 <= value < math.inf:
                raise SelftestError(f"{where}: {name} must be a finite number that is not negative, got {value!r}")
        return Tolerance(**form)
    if isinstance(form, list) and form and all(isinstance(part, dict) for part in form):
        parts = []
        for part in form:
            rest = {name: value for name, value in part.items() if name not in ("first", "rest")}
            if "first" in part and "rest" not in part and type(part["first"]) is int and part["first"] > 0:
                covered = float(part["first"])
            elif part.get("rest") is True and "first" not in part:
                covered = math.inf
            else:
                raise SelftestError(f'{where}: a part must have "first": n or "rest": true, got {part!r}')
            tolerance = parse_tolerance(rest or "exact", where)
            assert isinstance(tolerance, Tolerance)
            parts.append((covered, tolerance))
        return PositionTolerance(tuple(parts))
    raise SelftestError(
        f'{where}: unknown tolerance {form!r}; known: "exact", {{"rel": x}}, {{"abs": x}}, both together, '
        f'[{{"first": n, ...}}, {{"rest": true, ...}}]'
    )


class FieldTolerances:
    """The tolerances of one section: by the name of a field at any depth, and "*" for every other field."""

    def __init__(self, forms: Any, where: str) -> None:
        if not isinstance(forms, dict):
            raise SelftestError(f"{where}: must map field names to tolerances, got {type(forms).__name__}")
        self.where = where
        self.by_field = {name: parse_tolerance(form, f"{where}.{name}") for name, form in forms.items()}

    def compare(self, got: dict[str, Any], expected: dict[str, Any]) -> list[Deviation]:
        """Every expected value beside the computed one.

        The innermost enclosing field with a tolerance of its own decides. Keys and list lengths must agree; where they
        do not, that is a deviation with error inf. Raises ``SelftestError`` for a field that no tolerance covers.
        """
        deviations: list[Deviation] = []
        self.walk("", self.by_field.get("*"), got, expected, deviations)
        return deviations

    def walk(
        self, path: str, rule: Tolerance | PositionTolerance | None, got: Any, expected: Any, found: list[Deviation]
    ) -> None:
        """Append the deviations below one place of the case."""
        if isinstance(expected, dict) and isinstance(got, dict):
            for key in [*expected, *(key for key in got if key not in expected)]:
                place = f"{path}.{key}" if path else key
                if key not in got or key not in expected:
                    found.append(absent(place, key in got, got.get(key), expected.get(key)))
                    continue
                self.walk(place, self.by_field.get(key, rule), got[key], expected[key], found)
        elif isinstance(expected, list) and isinstance(got, list):
            if len(got) != len(expected):
                found.append(Deviation(f"{path} (length)", math.inf, 0.0, "exact", len(got), len(expected)))
                return
            for index, (own, wanted) in enumerate(zip(got, expected, strict=True)):
                inner = rule.at(index, f"{self.where} ({path})") if isinstance(rule, PositionTolerance) else rule
                self.walk(f"{path}[{index}]", inner, own, wanted, found)
        elif not isinstance(rule, Tolerance):
            lacks = "has no tolerance" if rule is None else "has a tolerance by position but is no list"
            raise SelftestError(f"{self.where}: the field {path} {lacks}; name it there, or '*' for every other field")
        else:
            found.append(Deviation(path, *rule.judge(got, expected), got, expected))


def absent(place: str, computed: bool, got: Any, expected: Any) -> Deviation:
    """A key that only one side has."""
    if computed:
        return Deviation(place, math.inf, 0.0, "exact", got, "nothing")
    return Deviation(place, math.inf, 0.0, "exact", "nothing", expected)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
