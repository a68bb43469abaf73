"""How long a step of the same work takes on different nodes: whether a node is slower shows in trials themselves.

Work is the same where the settings agree that decide what a step computes; learning rates and the like differ between
trials and cost nothing.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping
from typing import Any

from golfray.sweep.records import StudyRecord

# Who ran a trial: host and address of every node of its lane.
Place = tuple[tuple[str, str], ...]

# Sections of settings that decide what a step computes, and those of other sections that do.
_SECTIONS = ("model", "batch", "runtime")
_SETTINGS = ("muon.ns_steps", "muon.ns_dtype")
# Of these sections, what costs nothing.
_FREE = ("runtime.seed", "runtime.log_points", "batch.val_tokens", "model.qk_gain_init", "model.tied_embed_init_std")


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Trials of the same work: milliseconds of a step by place and trial, {place: {trial: ms}}."""

    ms: dict[Place, dict[int, float]]

    def median(self, place: Place) -> float:
        """Of the trials at a place."""
        return statistics.median(self.ms[place].values())

    def times(self, place: Place) -> float | None:
        """How many times the time of the other places (median of their medians) a step takes there; None: no other."""
        others = [self.median(other) for other in self.ms if other != place]
        return self.median(place) / statistics.median(others) if others else None


def step_times(record: StudyRecord) -> list[StepTimes]:
    """Every work of which some trial has told its time, in the order of the first trials."""
    found: dict[str, dict[Place, dict[int, float]]] = {}
    for trial in record.trials:
        attempt = trial.attempt
        if attempt is None or attempt.outcome is None or not attempt.nodes or trial.settings is None:
            continue
        ms = attempt.outcome.metrics.get("train/step_ms")
        if ms is None:
            continue
        place = tuple(sorted((node.host, node.address) for node in attempt.nodes))
        found.setdefault(work_key(trial.settings), {}).setdefault(place, {})[trial.number] = ms
    return [StepTimes(ms) for ms in found.values()]


def work_key(settings: Mapping[str, Any]) -> str:
    """Equal for two trials of which a step computes the same."""
    flat = {
        f"{section}.{name}": value
        for section, values in settings.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
    }
    counted = {
        path: value
        for path, value in flat.items()
        if (path.partition(".")[0] in _SECTIONS and path not in _FREE) or path in _SETTINGS
    }
    return json.dumps(counted, sort_keys=True)
