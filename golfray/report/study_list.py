"""``golfray ls``: the studies of a folder, a line each, the most recently written one first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError
from golfray.report.lookup import load_study, study_names
from golfray.report.numbers import bpb_text, seconds_text
from golfray.report.status import StudyStatus
from golfray.sweep.choosing import best_feasible
from golfray.sweep.events import EventLogError


@dataclasses.dataclass(frozen=True)
class ListedStudy:
    """One of them; ``status`` None where its log cannot be read, and then ``wrong`` says why."""

    name: str
    folder: Path
    status: StudyStatus | None
    wrong: str | None = None

    def document(self) -> dict[str, Any]:
        """LISTED of docs/json.md."""
        if self.status is None:
            return {"study": self.name, "folder": str(self.folder), **dict.fromkeys(_FIELDS), "wrong": self.wrong}
        record, best = self.status.record, best_feasible(self.status.record)
        return {
            "study": self.name,
            "folder": str(self.folder),
            "condition": self.status.condition,
            "ended": self.status.ended,
            "planned": self.status.planned,
            "best": None if best is None else best.number,
            "bpb": None if best is None else best.bpb,
            "last_event": record.last_event,
            "wrong": None,
        }

    def cells(self) -> tuple[str, ...]:
        """Name, condition, trials, best score, age of the last record."""
        if self.status is None:
            return self.name, "cannot be read", "", "", str(self.wrong)
        best, status = best_feasible(self.status.record), self.status
        trials = f"{status.ended}" + ("" if status.planned is None else f" of {status.planned}")
        age = seconds_text(max(status.now - (status.record.last_event or status.now), 0.0))
        score = "none" if best is None else f"{bpb_text(best.bpb)} (t{best.number:03d})"
        return self.name, status.condition, trials, score, f"{age} ago"


_FIELDS = ("condition", "ended", "planned", "best", "bpb", "last_event")
_HEADINGS = ("study", "condition", "trials", "best BPB", "last event")


def list_studies(studies: Path, now: float) -> list[ListedStudy]:
    """The studies below a folder at ``now``, in unix seconds. One that cannot be read is there all the same."""
    found = []
    for name in study_names(studies):
        folder = studies / name
        try:
            found.append(ListedStudy(name, folder, StudyStatus.of(load_study(str(folder)), now)))
        except (ConfigError, EventLogError) as error:
            found.append(ListedStudy(name, folder, None, str(error)))
    return found


def list_lines(found: list[ListedStudy]) -> list[str]:
    """A table as lines; only headings where there is none."""
    rows = [_HEADINGS, *(study.cells() for study in found)]
    wide = [max(len(row[index]) for row in rows) for index in range(len(_HEADINGS) - 1)]
    return ["  ".join([*(f"{cell:<{size}}" for cell, size in zip(row, wide, strict=False)), row[-1]]) for row in rows]
