"""Foreign observations as lines for a person and as a document for a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golfray.config.sizes import count_text
from golfray.report.numbers import bpb_text, bytes_text, value_text
from golfray.sweep.observation import Observation, Observations

# Columns that most readers look for; the file has every setting.
_SHOWN = {
    "matrix_lr": "optimizer.matrix_lr",
    "momentum": "muon.momentum_end",
    "warmdown": "schedule.warmdown_share",
    "decay": "muon.weight_decay",
}
_NAME_CHARACTERS = 40


def observation_lines(observations: Observations, skipped: Sequence[str], file: Path) -> list[str]:
    """A row an observation, a line for each record that was skipped, and what to do with the file."""
    rows = [("id", "BPB", "runs", "bytes", *_SHOWN, "apart"), *map(_row, observations.records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"skipped: {line}" for line in skipped]
    count = count_text(len(observations.records), "observation")
    lines.append(f"{file}: {count} from {observations.source}; {count_text(len(skipped), 'record')} skipped")
    lines.append("warmdown is a share of the run; apart: what sets a record apart that no setting says")
    lines.append(f"in a space file for the full scale: warm_start: {file.name}")
    return lines


def observation_document(observations: Observations, skipped: Sequence[str], file: Path) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "file": str(file),
        "source": observations.source,
        "stock_bpb": observations.stock_bpb,
        "stock_runs": observations.stock_runs,
        "observations": [dataclasses.asdict(record) for record in observations.records],
        "skipped": list(skipped),
    }


def _row(record: Observation) -> tuple[str, ...]:
    name = record.id if len(record.id) <= _NAME_CHARACTERS else f"{record.id[: _NAME_CHARACTERS - 3]}..."
    settings = (value_text(record.settings.get(path)) for path in _SHOWN.values())
    apart = str(len(record.beyond)) if record.beyond else "-"
    return name, bpb_text(record.bpb), str(record.runs), bytes_text(record.bytes_total), *settings, apart
