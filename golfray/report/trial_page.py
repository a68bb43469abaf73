"""``golfray show trial``: everything that is known of one trial."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golfray.config.resolve import resolve
from golfray.config.sizes import size_text
from golfray.report.documents import running_entry, trial_entry
from golfray.report.export_front import search_text
from golfray.report.lookup import FoundTrial
from golfray.report.numbers import knob_paths, outcome_text, seconds_text, value_text
from golfray.report.progress import position_of
from golfray.report.ranking import ranks
from golfray.report.sparkline import sparkline
from golfray.sweep.lane_time import attempt_seconds
from golfray.sweep.outcome import Kind
from golfray.sweep.resolved_diff import flat_settings
from golfray.sweep.trial_record import AttemptRecord

_CURVE_WIDTH = 60


def changed_settings(settings: Mapping[str, Any], preset: str, scale: str) -> dict[str, tuple[Any, Any]]:
    """{path: (the preset's value, the trial's)} of the settings that differ. Sizes of the script are no settings."""
    config = resolve(preset, scale, has_gpu=False).config
    own = flat_settings(settings)
    base = flat_settings(dataclasses.asdict(config.to_run_settings(settings.get("bytes_code", 0))))
    return {path: (base.get(path), value) for path, value in own.items() if base.get(path) != value}


def trial_document(found: FoundTrial) -> dict[str, Any]:
    """The document of the kind "trial"."""
    record, trial = found.study.record, found.trial
    return {
        "study": record.name,
        "study_folder": str(found.study.folder),
        **trial_entry(record, trial, ranks(record).get(trial.number)),
        "attempts": [_attempt_document(found, attempt) for attempt in trial.attempts],
        "params": trial.params,
        "told": trial.told,
        "told_reason": trial.told_reason,
        "settings": trial.settings,
        "changed": {path: {"preset": preset, "trial": own} for path, (preset, own) in _changed_of(found).items()},
        "running": running_entry(trial),
    }


def trial_lines(found: FoundTrial) -> list[str]:
    """For a person: the trial, its knobs and changes, then each attempt with its curve, its numbers and its files."""
    record, trial = found.study.record, found.trial
    places = ranks(record)
    rank = places.get(trial.number)
    lines = [f"t{trial.number:03d} of study {record.name}: {trial.role}, seed {trial.seed}"]
    if trial.replicate_of is not None:
        lines.append(f"  repeats t{trial.replicate_of:03d} on another seed")
    if trial.share != 1.0:
        lines.append(f"  a short run, of {100 * trial.share:.0f}% of the length: its size means nothing")
    if trial.promotes is not None:
        lines.append(f"  the same point as t{trial.promotes:03d}, which was among the best of its length")
    if rank is not None:
        lines.append(f"  rank {rank} of {len(places)}" + (", the best feasible" if rank == 1 else ""))
    if not trial.told:
        lines.append(f"  the sampler does not hear of it: {trial.told_reason}")
    changed = _changed_of(found)
    knobs = [path for path in knob_paths(record) if path in changed]
    for title, paths in (("knobs", knobs), ("other settings", [path for path in changed if path not in knobs])):
        if paths:
            lines.append(f"{title} that differ from {record.header['preset']} at scale {record.header['scale']}:")
            wide = max(map(len, paths))
            lines += [
                f"  {path:<{wide}}  {value_text(changed[path][1])} (preset: {value_text(changed[path][0])})"
                for path in paths
            ]
    if trial.is_refused:
        lines.append(f"{'it cannot fit' if trial.too_large else 'its configuration was refused'}, so it never ran")
    for attempt in trial.attempts:
        lines += _attempt_lines(found, attempt)
    return lines


def _attempt_lines(found: FoundTrial, attempt: AttemptRecord) -> list[str]:
    outcome, folder = attempt.outcome, _folder(found, attempt)
    begun = attempt.started or attempt.submitted
    took = "" if attempt.ended is None or begun is None else f" after {seconds_text(attempt.ended - begun)}"
    lane = "" if attempt.lane is None else f" on {attempt.lane}{_places(attempt)}"
    if outcome is None:
        position = position_of(found.trial)
        return [
            f"attempt {attempt.number}{lane}: {'not ended' if position is None else position.phase}",
            *_curve_lines(attempt),
            *_file_lines(folder),
        ]
    lines = [f"attempt {attempt.number}{lane}: {outcome_text(outcome)}{took}"]
    if attempt.late_check is not None and attempt.late_check.audited:
        lines.append(f"  audited, so it ran on although hopeless: {attempt.late_check.reason}")
    reason = outcome.reason.strip().splitlines()
    # Of an outcome without a score, the first line has been said.
    lines += [f"  {line}" for line in reason[0 if outcome.kind in (Kind.SCORED, Kind.INFEASIBLE) else 1 :]]
    if outcome.error:
        lines.append(f"  error: {outcome.error}")
    if (seconds := attempt_seconds(attempt)) and outcome.phases:
        lines.append("  phases: " + ", ".join(f"{name} {seconds_text(took)}" for name, took in seconds.items()))
    if outcome.metrics.get("train/recompiles", 0.0) > 0:
        lines.append("  compiled again inside the clock: it trained less than its time would have allowed")
    if outcome.search is not None:
        lines.append(f"  {search_text(outcome.search)}")
    lines += _curve_lines(attempt)
    if outcome.metrics:
        wide = max(map(len, outcome.metrics))
        lines += [f"  {name:<{wide}}  {_number(value)}" for name, value in outcome.metrics.items()]
    if outcome.fidelity:
        lines.append("  fidelity: " + ", ".join(f"{name} {value}" for name, value in outcome.fidelity.items()))
    return [*lines, *_file_lines(folder)]


def _places(attempt: AttemptRecord) -> str:
    """The machines of its lane, where there may be others."""
    places = [f"{node.host} ({node.address})" for node in attempt.nodes]
    return f" at {', '.join(places)}" if places else ""


def _curve_lines(attempt: AttemptRecord) -> list[str]:
    points = [(step, metrics["train/loss"]) for step, metrics in attempt.curve if "train/loss" in metrics]
    if not points:
        return []
    losses = [loss for _, loss in points]
    return [
        f"  train/loss, {losses[0]:.4f} at step {points[0][0]:,} to {losses[-1]:.4f} at step {points[-1][0]:,}:",
        f"  {sparkline(losses, _CURVE_WIDTH)}",
    ]


def _file_lines(folder: Path | None) -> list[str]:
    if folder is None or not folder.is_dir():
        return []
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [f"  files in {folder}:", *(f"    {path.name}  {size_text(path.stat().st_size)}" for path in files)]


def _attempt_document(found: FoundTrial, attempt: AttemptRecord) -> dict[str, Any]:
    folder = _folder(found, attempt)
    return {
        "attempt": attempt.number,
        "lane": attempt.lane,
        "nodes": [node.to_dict() for node in attempt.nodes],
        "submitted": attempt.submitted,
        "started": attempt.started,
        "ended": attempt.ended,
        "outcome": None if attempt.outcome is None else attempt.outcome.to_dict(),
        "seconds": attempt_seconds(attempt),
        "folder": None if folder is None else str(folder),
        "files": [] if folder is None or not folder.is_dir() else sorted(path.name for path in folder.iterdir()),
        "late_check": None if attempt.late_check is None else dataclasses.asdict(attempt.late_check),
        "curve": [{"step": step, **metrics} for step, metrics in attempt.curve],
    }


def _changed_of(found: FoundTrial) -> dict[str, tuple[Any, Any]]:
    header = found.study.record.header
    if found.trial.settings is None:
        return {}
    return changed_settings(found.trial.settings, header["preset"], header["scale"])


def _folder(found: FoundTrial, attempt: AttemptRecord) -> Path | None:
    return None if attempt.folder is None else found.study.folder / attempt.folder


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:.6g}"
