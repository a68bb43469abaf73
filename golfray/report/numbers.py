"""How numbers and outcomes are printed, the same in every line and table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import TrialRecord

# With outcomes in colour, and in words for those who see none.
KIND_STYLE = {
    Kind.SCORED: "green",
    Kind.INFEASIBLE: "yellow",
    Kind.STOPPED: "dim",
    Kind.DIVERGED: "red",
    Kind.CRASHED: "red",
    Kind.PREEMPTED: "dim",
    Kind.CANCELLED: "dim",
}


def bpb_text(value: float | None) -> str:
    """Bits per byte to four places: seeds differ in the third or fourth."""
    return "-" if value is None else f"{value:.4f}"


def bytes_text(value: float | None) -> str:
    """A whole number of bytes with separators."""
    return "-" if value is None or not math.isfinite(value) else f"{int(value):,}"


def margin_text(value: float | None) -> str:
    """Bytes left under the cap with a sign: negative is over it."""
    return "-" if value is None or not math.isfinite(value) else f"{int(value):+,}"


def sliding_text(metrics: Mapping[str, float]) -> str:
    """What sliding windows gave, where a trial has ``sliding/scored_share``: they may have run out of time."""
    if "bpb/sliding" in metrics:
        return f"by sliding windows: {bpb_text(metrics['bpb/sliding'])}"
    share = metrics["sliding/scored_share"]
    return f"by sliding windows: no score, {share:.0%} of the text in evaluation.sliding_seconds"


def seconds_text(value: float) -> str:
    """Seconds as ``14.9 s``, ``2 min 05 s`` or ``1 h 02 min``; what is no number of seconds as it is."""
    if not math.isfinite(value):
        return f"{value} s"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def value_text(value: Any) -> str:
    """A knob's value in few characters: four significant digits for a float; an empty text as ``""``."""
    if value is None:
        return "-"
    if value == "":
        return '""'
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def knob_value(trial: TrialRecord, path: str) -> Any:
    """What a trial ran with at a knob's path; what the sampler drew where its settings have no such path."""
    return trial.setting(path, trial.params.get(path))


def knob_paths(record: StudyRecord) -> list[str]:
    """Paths of the study's knobs, in the order of its space."""
    return list(record.header.get("space", {}).get("knobs", {}))


def outcome_text(outcome: Outcome) -> str:
    """One line: the kind, and what it is worth knowing about it."""
    metrics = outcome.metrics
    total, margin = metrics.get("bytes/total"), metrics.get("bytes/margin")
    if outcome.kind is Kind.SCORED:
        return f"{bpb_text(metrics.get('bpb/roundtrip'))} BPB, {bytes_text(total)} bytes, margin {margin_text(margin)}"
    if outcome.refused_margin is not None:
        return f"infeasible, {first_line(outcome.reason)}"
    if outcome.kind is Kind.INFEASIBLE:
        over = bytes_text(None if margin is None else -margin)
        return f"infeasible: {over} bytes over the cap ({bytes_text(total)} bytes)"
    return f"{outcome.kind.value}: {first_line(outcome.reason) or 'no reason given'}"


def first_line(text: str, characters: int = 200) -> str:
    """The first line of a reason, cut where it is very long; the event log has the whole."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= characters else line[: characters - 3] + "..."


def fidelity_text(fidelity: Mapping[str, Any]) -> str:
    """What a score can be compared on, in words: "cpu, float32, compiled, 2 ranks of 1 thread, wallclock"."""
    words = [str(fidelity.get("device", "unknown device")), str(fidelity.get("dtype", "unknown dtype"))]
    if "compiled" in fidelity:
        words.append("compiled" if fidelity["compiled"] else "eager")
    ranks = f"{fidelity.get('workers', '?')} rank(s)"
    words.append(ranks + (f" of {fidelity['threads']} thread(s)" if "threads" in fidelity else ""))
    words.append(str(fidelity.get("stop", "unknown stop")))
    return ", ".join(words)
