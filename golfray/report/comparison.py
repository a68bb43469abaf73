"""``golfray compare``: two runs side by side: what was set, what came of it, and where it ran."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from golfray.config.errors import shown
from golfray.report.lookup import STUDIES, FoundTrial, load_trial
from golfray.report.scores_lookup import load_scores, names_file, names_row, trial_label
from golfray.sweep.lane_time import attempt_seconds
from golfray.sweep.resolved_diff import ABSENT, flat_configuration, resolved_diff
from golfray.sweep.scores import Scores
from golfray.sweep.trial_scores import PLAIN


@dataclasses.dataclass(frozen=True)
class Compared:
    """One side: its resolved configuration (None where it is not known), its numbers, and where it ran."""

    name: str
    settings: Mapping[str, Any] | None
    metrics: Mapping[str, float]
    environment: Mapping[str, Any]


def load_compared(text: str, studies: Path = STUDIES) -> Compared:
    """The side that a trial, a file of scores or a published row is; raises as ``load_scores`` does."""
    if names_row(text) or names_file(text):
        return _of_scores(load_scores(text, PLAIN, studies))
    return _of_trial(load_trial(text, studies), studies)


def comparison_lines(first: Compared, second: Compared) -> list[str]:
    """Three tables: settings that differ, metrics, environment; equal environments are said once."""
    titles = (first.name, second.name)
    lines = _settings_lines(first, second)
    metrics = [
        (name, _number(one), _number(other), _gap(one, other)) for name, (one, other) in _metrics(first, second).items()
    ]
    if metrics:
        lines += ["", *_table([("metric", *titles, "second - first"), *metrics])]
    places = [(name, _shown(one), _shown(other)) for name, (one, other) in _environment(first, second).items()]
    different = [row for row in places if row[1] != row[2]]
    same = [f"{name} {one}" for name, one, other in places if one == other != "-"]
    if different:
        lines += ["", *_table([("environment", *titles), *different])]
    return [*lines, "", *(["the same: " + ", ".join(same)] if same else ["nothing of the environment is the same"])]


def comparison_document(first: Compared, second: Compared) -> dict[str, Any]:
    """The document of the kind "comparison"; ``identical`` and ``settings`` are null where one is not known."""
    diff = _diff(first, second)
    return {
        "first": first.name,
        "second": second.name,
        "identical": None if diff is None else not diff,
        "settings": None if diff is None else {path: _pair(*pair) for path, pair in diff.items()},
        "metrics": {name: _pair(*pair) for name, pair in _metrics(first, second).items()},
        "environment": {name: _pair(*pair) for name, pair in _environment(first, second).items()},
    }


def _of_trial(found: FoundTrial, studies: Path) -> Compared:
    record, trial = found.study.record, found.trial
    attempt, outcome = trial.attempt, trial.outcome
    metrics: dict[str, float] = {}
    if outcome is not None and attempt is not None:
        spent_on = attempt_seconds(attempt)
        metrics = {**outcome.metrics, **{f"phase/{name}_s": spent for name, spent in spent_on.items()}}
    hosts = {driver.number: driver.host for driver in record.generations}
    environment = {
        "outcome": None if outcome is None else outcome.kind.value,
        "seed": trial.seed,
        "driver's host": None if attempt is None else hosts.get(attempt.generation),
        "lane": None if attempt is None else attempt.lane,
        "golfray": record.header.get("golfray_version"),
        "preset": record.header["preset"],
        "scale": record.header["scale"],
        **({} if outcome is None else outcome.fidelity),
        "corpus": record.header["data"].get("name"),
        "corpus digest": record.header["data"].get("digest"),
        "bytes of code": record.header.get("bytes_code"),
    }
    settings = None if trial.settings is None else flat_configuration(trial.settings)
    return Compared(trial_label(found, studies), settings, metrics, environment)


def _of_scores(scores: Scores) -> Compared:
    metrics = {f"bpb/{scores.evaluation}": scores.sample.mean, "runs": float(scores.sample.n)}
    if scores.sample.sd is not None:
        metrics["bpb/sd"] = scores.sample.sd
    environment = {**scores.fidelity, "corpus": scores.text.name, "corpus digest": scores.text.digest}
    return Compared(scores.name, scores.settings, metrics, environment)


def _settings_lines(first: Compared, second: Compared) -> list[str]:
    diff = _diff(first, second)
    if diff is None:
        unknown = [side.name for side in (first, second) if side.settings is None]
        return [f"the resolved configuration of {' and of '.join(unknown)} is not known, so settings are not compared"]
    if not diff:
        return [f"{first.name} and {second.name} are identical in every resolved setting but the seed"]
    rows = [(path, _shown(one), _shown(other)) for path, (one, other) in diff.items()]
    return list(_table([("setting", first.name, second.name), *rows]))


def _diff(first: Compared, second: Compared) -> dict[str, tuple[Any, Any]] | None:
    if first.settings is None or second.settings is None:
        return None
    return resolved_diff(first.settings, second.settings)


def _metrics(first: Compared, second: Compared) -> dict[str, tuple[float | None, float | None]]:
    names = dict.fromkeys([*first.metrics, *second.metrics])
    return {name: (first.metrics.get(name), second.metrics.get(name)) for name in names}


def _environment(first: Compared, second: Compared) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*first.environment, *second.environment])
    return {name: (first.environment.get(name), second.environment.get(name)) for name in names}


def _pair(one: Any, other: Any) -> dict[str, Any]:
    return {"first": None if one is ABSENT else one, "second": None if other is ABSENT else other}


def _shown(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) and value else shown(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:.6g}"


def _gap(one: float | None, other: float | None) -> str:
    """At a precision at which a difference of what stands beside it can be seen."""
    if one is None or other is None or not (math.isfinite(one) and math.isfinite(other)):
        return ""
    gap = other - one
    return f"{gap:+,.0f}" if gap == int(gap) else f"{gap:+.3g}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
