"""How the study that is to be resumed differs from the one that the log tells of, and whether it may.

A difference is one line: its path, what it was, what it is now. None is taken over in silence. Some make another study
of it, in which the old trials would be compared with what they cannot be compared with: those are always refused.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import golfray
from golfray.config.errors import ConfigError, shown
from golfray.sweep.budget import Price
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space
from golfray.sweep.space_record import knob_of
from golfray.sweep.trial_record import PRESET

ALLOW = "--allow-changes"

# What decides which study this is, or what its scores mean.
_NEVER = ("simulation", "name", "preset", "scale", "workers", "cap_bytes", "seed", "fixed", "data", "config")

# How the data are called and where they lie is no part of what they are.
_PLACE_OF_DATA = ("data.name", "data.folder", "data.tokenizer")

# Words for a person, and what was found out about the same files; the file that the space was read from; the paths of
# the data once more, laid over the preset.
_NOT_COMPARED = ("source", "data.warning", "data.contaminated", "fixed.data.folder", "fixed.data.tokenizer")

# Sections of a trial's settings that are compared by themselves, or that no configuration has.
_NOT_FROM_PRESET = ("data", "bytes_code", "cap_bytes", "clock_trace")


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference; ``path`` is dotted, ``old`` and ``new`` are None where there is nothing."""

    path: str
    old: Any
    new: Any

    @property
    def may_be(self) -> bool:
        """Whether a person may allow it."""
        return self.path in _PLACE_OF_DATA or self.path.partition(".")[0] not in _NEVER

    def __str__(self) -> str:
        return f"{self.path}: {self._words(self.old)} -> {self._words(self.new)}"

    def _words(self, value: Any) -> str:
        if value is None:
            return "none"
        section, _, path = self.path.partition(".")
        return knob_of(path, value).describe() if section == "knobs" and isinstance(value, Mapping) else shown(value)


def changes_since(
    record: StudyRecord,
    space: Space,
    *,
    bytes_code: int,
    data: Mapping[str, Any],
    simulation: Mapping[str, Any] | None = None,
    price: Price | None = None,
) -> list[Change]:
    """What differs between the study in ``record`` and what would go on now, in a fixed order.

    ``bytes_code``, ``data``, ``simulation`` and ``price``: as :class:`golfray.sweep.study.Study` takes them. What only
    one of two versions of golfray says of a space or of data is not compared.
    """
    header, config = record.header, space.base.config
    now: dict[str, Any] = {
        **space.to_dict(),
        "workers": config.workers,
        "cap_bytes": config.cap_bytes,
        "bytes_code": bytes_code,
        "golfray_version": golfray.__version__,
        "simulation": simulation,
        "usd_per_hour": None if price is None else price.usd_per_hour,
    }
    priced = Price.of(record)
    # Logs of earlier versions are all of real studies.
    before = {"simulation": None, **header, **header["space"]}
    before["usd_per_hour"] = None if priced is None else priced.usd_per_hour
    before["data"] = {name: value for name, value in header["data"].items() if name in data}
    now["data"] = {name: value for name, value in data.items() if name in before["data"]}
    changes = [
        change
        for name in now
        if name in before
        for change in _differences(name, before[name], now[name])
        if change.path not in _NOT_COMPARED
    ]
    if all(change.may_be for change in changes):
        changes += _changes_of_preset(record, space)
    return changes


def allowed_changes(changes: Sequence[Change], folder: Path, *, allow: bool) -> list[str]:
    """The lines of ``changes`` for the log. Raises ``ConfigError`` where one cannot be, or is not allowed to be."""
    never = [change for change in changes if not change.may_be]
    if never:
        raise ConfigError(
            f"holds another study than this; its trials and new ones could not be compared:\n{_listed(never)}\n"
            "undo that, or start a new study in another folder with --study-dir",
            file=str(folder),
        )
    if changes and not allow:
        raise ConfigError(
            f"the study in it differs from what would go on now:\n{_listed(changes)}\n"
            f"{ALLOW} goes on with what there is now, and the log keeps these lines",
            file=str(folder),
        )
    return [str(change) for change in changes]


def _changes_of_preset(record: StudyRecord, space: Space) -> list[Change]:
    """Settings that this version of golfray gives trial 0 otherwise, although nobody changed the space."""
    first = next((trial for trial in record.trials if trial.role == PRESET and trial.settings is not None), None)
    if first is None or first.settings is None:
        return []
    now = dataclasses.asdict(space.base.config.to_run_settings(0))
    return [
        change
        for name in dict.fromkeys([*first.settings, *now])
        if name not in _NOT_FROM_PRESET
        for change in _differences(f"config.{name}", first.settings.get(name), now.get(name))
    ]


def _differences(path: str, old: Any, new: Any) -> Iterator[Change]:
    """The leaves in which two plain values differ. A knob that is new or gone is one difference, whatever it has."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if path == "knobs" and old.keys() == new.keys():
            # The sampler draws them in this order, so that another one gives other points.
            moved = ((one, other) for one, other in zip(old, new, strict=True) if one != other)
            yield from (Change("order of knobs", one, other) for one, other in itertools.islice(moved, 1))
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(f"{path}.{key}", old.get(key), new.get(key))
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}.{index}", one, other)
    elif old != new and not (path.startswith("knobs.") and _is_blank(old) and _is_blank(new)):
        yield Change(path, old, new)


def _is_blank(value: Any) -> bool:
    """What a field of a knob is where it was not given, in whichever version of golfray."""
    return value is None or value is False or value == {}


def _listed(changes: Sequence[Change]) -> str:
    return "\n".join(f"  {change}" for change in changes)
