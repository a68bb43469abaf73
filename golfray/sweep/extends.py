"""``extends:`` of a space file: one file laid over another, each value with its position in the file where it stands.

What the child says replaces what the parent says of the same thing: single values and lists whole, mappings key by key,
a knob field by field. In a child, ``null`` in the place of a knob removes it, and a setting that one file fixes and the
other searches is as the child has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document, load_yaml
from golfray.config.resolve import Layer

# Mappings that are laid over each other key by key; all else but knobs is replaced whole.
_BY_KEY = ("budget", "limits", "nodes", "fixed")

_RANGE_FIELDS = frozenset({"low", "high", "log", "step", "complement", "or_zero", "at_most"})


def load_extended(path: Path) -> Document:
    """A space file, laid over the file that its ``extends`` names, where it has one.

    A parent that extends another one, or is not there, and a knob that is removed and was none are refused. Raises
    :class:`ConfigError`.
    """
    child = load_yaml(path)
    if "extends" not in child.values:
        return child
    name = child.values["extends"]
    if not isinstance(name, str) or not name or "\0" in name:
        raise child.error("extends", f"must be the path of another space file, got {shown(name)}")
    parent_path = path.parent / name
    try:
        is_itself = parent_path.exists() and parent_path.samefile(path)
    except OSError as error:
        raise child.error("extends", f"cannot be read: {error.strerror}: {shown(name)}") from error
    if is_itself:
        raise child.error("extends", "names this file itself; name another one, or remove it")
    try:
        parent = load_yaml(parent_path)
    except ConfigError as error:
        if error.line is not None:
            raise
        raise child.error("extends", f"{parent_path} {error.message}") from error
    if "extends" in parent.values:
        raise parent.error("extends", f"must go: {child.source} extends this file, and only one level is followed")
    return _Extension(parent, child).document()


def changed_entry(entry: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A knob's fields with some of them changed: choices replace a range and all that belongs to it, and vice versa."""
    dropped = _RANGE_FIELDS if changes.get("choices") is not None else frozenset()
    dropped |= {"choices"} if {"low", "high"} & changes.keys() else set()
    return {key: value for key, value in entry.items() if key not in dropped} | dict(changes)


class _Extension:
    """Lays one document over another. Shapes that are wrong are kept as they are, for the reader of files to refuse."""

    def __init__(self, parent: Document, child: Document) -> None:
        self._parent = parent
        self._child = child
        self._replaced: set[str] = set()

    def document(self) -> Document:
        """The merged values, with the positions of what is left of both files."""
        parent = self._parent.values | {"fixed": Layer.from_document(self._parent, "fixed").flat()}
        child = self._child.values | {"fixed": Layer.from_document(self._child, "fixed").flat()}
        self._settle_knobs(parent, child)
        values = dict(parent)
        for key, value in child.items():
            values[key] = self._over(key, parent[key], value) if key in parent else value
        return Document(self._child.source, values, self._positions())

    def _settle_knobs(self, parent: dict[str, Any], child: dict[str, Any]) -> None:
        """Take out of both what the child's word on a setting makes void."""
        knobs, above = child.get("knobs", {}), parent.get("knobs", {})
        if not isinstance(knobs, dict) or not isinstance(above, dict):
            return
        removed = [path for path, entry in knobs.items() if entry is None]
        for path in removed:
            if path not in above:
                raise self._child.error(
                    f"knobs.{path}",
                    f"removes a knob that {self._parent.source} does not have; {did_you_mean(path, above)}",
                )
        parent["fixed"] = {path: value for path, value in parent["fixed"].items() if path not in knobs}
        void = {*removed, *child["fixed"]}
        if "knobs" in child:
            child["knobs"] = {path: entry for path, entry in knobs.items() if path not in removed}
        if "knobs" in parent:
            parent["knobs"] = {path: entry for path, entry in above.items() if path not in void}
        if "scales" in parent:
            parent["scales"] = self._scales_left(parent["scales"], void, above, knobs)
        if "first_points" not in child:
            self._refuse_lost_points(parent.get("first_points"), above.keys() & void)

    def _scales_left(self, scales: Any, void: set[str], above: Mapping[str, Any], below: Mapping[str, Any]) -> Any:
        """The parent's scales without knobs that are none any more, and without changes to a range that is gone."""
        if not isinstance(scales, dict):
            return scales
        left = {}
        for scale, knobs in scales.items():
            left[scale] = knobs
            if isinstance(knobs, dict):
                left[scale] = {
                    path: _without_other_kind(entry, above.get(path), below.get(path))
                    for path, entry in knobs.items()
                    if path not in void
                }
        return left

    def _refuse_lost_points(self, points: Any, lost: set[str]) -> None:
        for index, point in enumerate(points if isinstance(points, list) else []):
            for path in point if isinstance(point, dict) else {}:
                if path in lost:
                    place = self._parent.position(f"first_points.{index}.{path}")
                    stated = f"knobs.{path}" if f"knobs.{path}" in self._child.positions else f"fixed.{path}"
                    raise self._child.error(
                        stated, f"is no knob any more, but first_points of {place} names it; give first_points here too"
                    )

    def _over(self, key: str, above: Any, below: Any) -> Any:
        if isinstance(above, dict) and isinstance(below, dict):
            if key in _BY_KEY:
                self._replaced |= {f"{key}.{name}" for name in below}
                return above | below
            if key == "knobs":
                return self._knobs_over(key, above, below)
            if key == "scales":
                return above | {
                    scale: self._knobs_over(f"scales.{scale}", above[scale], knobs) if scale in above else knobs
                    for scale, knobs in below.items()
                }
        self._replaced.add(key)
        return below

    def _knobs_over(self, home: str, above: Any, below: Any) -> Any:
        if not isinstance(above, dict) or not isinstance(below, dict):
            self._replaced.add(home)
            return below
        merged = dict(above)
        for path, entry in below.items():
            place, before = f"{home}.{path}", above.get(path)
            if isinstance(before, dict) and isinstance(entry, dict):
                merged[path] = changed_entry(before, entry)
                self._replaced |= {f"{place}.{field}" for field in (*entry, *(before.keys() - merged[path].keys()))}
            else:
                self._replaced.add(place)
                merged[path] = entry
        return merged

    def _positions(self) -> dict[str, Any]:
        kept = {
            path: position
            for path, position in self._parent.positions.items()
            if not any(path == gone or path.startswith(f"{gone}.") for gone in self._replaced)
        }
        return kept | dict(self._child.positions)


def _without_other_kind(changes: Any, before: Any, after: Any) -> Any:
    """What a scale changes about a knob that was a range and is now choices, or the other way round."""
    if not (isinstance(changes, dict) and isinstance(before, dict) and isinstance(after, dict)):
        return changes
    gone = frozenset(before) - frozenset(changed_entry(before, after))
    if not gone & {"low", "high", "choices"}:
        return changes
    kind = _RANGE_FIELDS if "choices" not in gone else {"choices"}
    return {field: value for field, value in changes.items() if field not in kind}
