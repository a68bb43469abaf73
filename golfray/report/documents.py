"""What verbs print with ``--json``, as plain dictionaries; docs/json.md has every field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.report.cost import cost_document
from golfray.report.lane_time import lane_time_document
from golfray.report.numbers import knob_paths, knob_value
from golfray.report.progress import position_of
from golfray.report.ranking import ranked_trials, ranks
from golfray.sweep.records import StudyRecord
from golfray.sweep.regret import stopped_trials
from golfray.sweep.statistics import claim
from golfray.sweep.trial_record import TrialRecord


class DocumentObserver:
    """Hands every event of a study on as a document of the kind "event"; points of curves only where asked for."""

    def __init__(self, document: Callable[[str, dict[str, Any]], None], progress: bool = False) -> None:
        self._document = document
        self._progress = progress

    def on_event(self, event: dict[str, Any]) -> None:
        """Print one event-log record."""
        if self._progress or event["event"] != "progress":
            self._document("event", event)

    def close(self) -> None:
        """Nothing is held back."""


def study_document(record: StudyRecord, folder: Path) -> dict[str, Any]:
    """A study as a whole: what it is, how it ended, every trial in the order of the table, and the claim."""
    header, said, places = record.header, claim(record), ranks(record)
    choice = said.choice
    return {
        "study": record.name,
        "folder": str(folder),
        "preset": header["preset"],
        "scale": header["scale"],
        "workers": header["workers"],
        "cap_bytes": record.cap_bytes,
        "budget": header["budget"],
        "started": record.started,
        "last_event": record.last_event,
        "generation": record.generation,
        "seconds": record.driven_seconds,
        "cost": cost_document(record),
        "lane_time": lane_time_document(record),
        "end_reason": record.end_reason,
        "complete": record.complete,
        "tracking_uri": header.get("tracking_uri"),
        "simulation": record.simulation,
        "counts": record.counts,
        "stopping": stopped_trials(record).to_dict(),
        "best": None if said.best is None else said.best.number,
        "choice": {
            "noise_sd": None if choice.noise is None else choice.noise.sd,
            "noise_df": None if choice.noise is None else choice.noise.df,
            "lowest": None if choice.lowest is None else choice.lowest.number,
            "standings": [
                {
                    "trial": standing.trial.number,
                    "seeds": standing.seeds,
                    "mean": standing.mean,
                    "posterior": standing.posterior,
                    "sd": standing.sd,
                    "diverged": standing.diverged,
                }
                for standing in choice.standings
            ],
        },
        "claim": {
            "reference_bpb": said.reference_bpb,
            "difference": said.difference,
            "noise_sd": said.noise.sd,
            "noise_runs": said.noise.runs,
            "in_noise_units": said.in_noise_units,
            "candidates": said.candidates,
            "expected_luck": said.expected_luck,
            "best_steps": said.best_steps,
            "reference_steps": said.reference_steps,
        },
        "data": {name: header["data"].get(name) for name in ("name", "folder", "reference", "warning")},
        "trials": [trial_entry(record, trial, places.get(trial.number)) for trial in ranked_trials(record)],
    }


def trial_entry(record: StudyRecord, trial: TrialRecord, rank: int | None) -> dict[str, Any]:
    """One trial in the list of a study; ``rank`` is None where it may not be best."""
    outcome, attempt = trial.outcome, trial.attempt
    begun = None if attempt is None else attempt.started or attempt.submitted
    return {
        "trial": trial.number,
        "role": trial.role,
        "share": trial.share,
        "promotes": trial.promotes,
        "rank": rank,
        "outcome": None if outcome is None else outcome.kind.value,
        "reason": None if outcome is None else outcome.reason,
        "bpb": trial.bpb,
        "bytes_total": trial.bytes_total,
        "margin": None if trial.bytes_total is None else record.cap_bytes - trial.bytes_total,
        "comparable": trial.bpb is None or record.is_comparable(trial),
        "knobs": {path: knob_value(trial, path) for path in knob_paths(record)},
        "seed": trial.seed,
        "replicate_of": trial.replicate_of,
        "attempts": len(trial.attempts),
        "seconds": None if attempt is None or attempt.ended is None or begun is None else attempt.ended - begun,
        "folder": None if attempt is None else attempt.folder,
        "artifact": None if outcome is None else outcome.artifact,
    }


def running_entry(trial: TrialRecord) -> dict[str, Any] | None:
    """Where the running attempt of a trial is; None where none runs."""
    position = position_of(trial)
    if position is None:
        return None
    return {
        "trial": trial.number,
        "attempt": len(trial.attempts),
        "role": trial.role,
        "phase": position.phase,
        "since": position.since,
        "step": position.step,
        "share": position.share,
        "loss": position.loss,
    }
