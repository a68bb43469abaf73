"""The first points of a space file: each names knobs, at values that the sampler could have drawn.

A value that it could not draw would be run, and the sampler would not hear of it: most likely a typing mistake. What a
point leaves out is as the preset has it, wherever that lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from golfray.config.errors import ConfigError, shown
from golfray.config.positions import Document
from golfray.config.schema import Scale, check_value
from golfray.sweep.knobs import Choice, Knob, OutOfRange, plain, walk
from golfray.sweep.space_file import SpaceFile


def read_first_points(
    file: SpaceFile, document: Document, knobs: Sequence[Knob], scale: Scale
) -> tuple[dict[str, Any], ...]:
    """All of them, {path: value} each, as the settings hold the values; ``knobs`` are those of ``scale``.

    Raises :class:`ConfigError`, placed in ``document``, at the first value that is none of its setting's, or that its
    knob cannot have at that point: outside the range, above the knob that bounds it, or where it is not searched.
    """
    # Where the file leaves the scale open, what is wrong may be so at only one of them.
    at_scale = f" at scale {scale}" if file.scale == "auto" else ""
    return tuple(_Point(document, index, knobs, at_scale).read(point) for index, point in enumerate(file.first_points))


class _Point:
    def __init__(self, document: Document, index: int, knobs: Sequence[Knob], at_scale: str) -> None:
        self._document = document
        self._index = index
        self._knobs = knobs
        self._at_scale = at_scale

    def read(self, written: Mapping[str, Any]) -> dict[str, Any]:
        point = {}
        for path, value in written.items():
            try:
                point[path] = check_value(path, value)
            except ConfigError as error:
                raise self._error(path, error.message) from error
        values, active = walk(self._knobs, lambda knob: point.get(knob.path, knob.preset_value))
        searched = {knob.path for knob in active}
        for knob in self._knobs:
            if knob.path not in searched:
                self._check_unsearched(knob, point, values)
                continue
            if knob.path in point:
                self._check_range(knob, point[knob.path])
            if knob.at_most is not None:
                self._check_bound(knob, knob.at_most, point, values)
        return point

    def _check_range(self, knob: Knob, value: Any) -> None:
        try:
            knob.params(value)
        except OutOfRange as error:
            words = f"in {knob.domain_words}"
            if isinstance(knob.domain, Choice):
                words = f"one of {', '.join(map(plain, knob.domain.choices))}"
            raise self._error(knob.path, f"must be {words}{self._at_scale}, got {shown(value)}") from error

    def _check_unsearched(self, knob: Knob, point: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if knob.path not in point or knob.is_preset(point[knob.path]):
            return
        condition = next(condition for condition in knob.when if not condition.holds(values[condition.path]))
        here = f"{plain(values[condition.path])}{self._at_scale}"
        raise self._error(knob.path, f"is searched only where {condition}, and here that is {here}; leave it out")

    def _check_bound(self, knob: Knob, bound: str, point: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        value, most = values[knob.path], values[bound]
        if value <= most or point.keys().isdisjoint((knob.path, bound)):
            return
        if knob.path in point:
            origin = "" if bound in point else self._from_preset
            raise self._error(knob.path, f"must be <= {bound} ({shown(most)}{origin}), got {shown(value)}")
        origin = self._from_preset
        raise self._error(bound, f"must be >= {knob.path} ({shown(value)}{origin}), got {shown(most)}; give both")

    @property
    def _from_preset(self) -> str:
        return f", as the preset has it{self._at_scale}"

    def _error(self, path: str, message: str) -> ConfigError:
        return self._document.error(f"first_points.{self._index}.{path}", message)
