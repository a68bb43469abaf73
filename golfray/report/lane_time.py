"""Where a study's lane time went, for a person and for a program."""

from __future__ import annotations

from typing import Any

from golfray.config.sizes import count_text
from golfray.report.numbers import seconds_text
from golfray.sweep.lane_time import PARTS, USEFUL, LaneTime, lane_time
from golfray.sweep.records import StudyRecord

# Parts that are named; the others are smaller.
_MOST_PARTS = 4


def lane_time_line(record: StudyRecord, *, all_parts: bool = False) -> str | None:
    """The share that trained and scored, and the largest parts of the rest; None before a lane was there for a time."""
    found = lane_time(record)
    if found.share is None:
        return None
    rest = sorted(
        ((part, seconds) for part, seconds in found.parts.items() if part not in USEFUL),
        key=lambda named: -named[1],
    )
    named = rest if all_parts else rest[:_MOST_PARTS]
    words = ", ".join(f"{part} {_share_text(found, seconds)}" for part, seconds in named)
    lanes = count_text(max(driver.now.slots for driver in record.generations), "lane")
    used = (
        f"lane time: {100 * found.share:.0f}% of {seconds_text(found.total_s)} on {lanes} in training and final scoring"
    )
    return f"{used}; {words}" if words else used


def lane_time_document(record: StudyRecord) -> dict[str, Any]:
    """LANE_TIME of docs/json.md."""
    found = lane_time(record)
    return {
        "share": found.share,
        "seconds": found.total_s,
        "before_s": found.before_s,
        "parts": {part: found.parts[part] for part in PARTS if part in found.parts},
    }


def recompiled_words(record: StudyRecord) -> str | None:
    """Which trials torch compiled again for while their clocks ran, so that they trained less; None for none."""
    names = [
        f"t{trial.number:03d}"
        for trial in record.trials
        if trial.outcome is not None and trial.outcome.metrics.get("train/recompiles", 0.0) > 0
    ]
    return f"compiled again inside the clock, which cost training time: {', '.join(names)}" if names else None


def _share_text(found: LaneTime, seconds: float) -> str:
    return f"{seconds_text(seconds)} ({100 * seconds / found.total_s:.0f}%)"
