"""In what two resolved configurations differ, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where the data lie and how large the packed script is, what no configuration has, and what a repetition changes.
_NOT_CONFIGURATION = ("data.", "bytes_code", "clock_trace", "runtime.seed")

ABSENT = "(not there)"


def flat_configuration(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial as dotted paths, without its seed and without what is no part of a configuration."""
    return {path: value for path, value in flat_settings(settings).items() if not path.startswith(_NOT_CONFIGURATION)}


def resolved_diff(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """{path: (the first's value, the second's)} of two flat configurations, in their order; empty: they are identical.

    ``ABSENT`` stands for the value of a side that has no such path.
    """
    pairs = {path: (first.get(path, ABSENT), second.get(path, ABSENT)) for path in dict.fromkeys([*first, *second])}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def flat_settings(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All of nested settings as dotted paths, each with ``prefix`` before it."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
