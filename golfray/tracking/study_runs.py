"""A study as the MLflow runs that it should have, from its event log alone; nothing here knows MLflow's client.

One run for the study, and below it one for each attempt at a trial. Which records have been taken in decides all of
it, so that the same log gives the same runs, live or years later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from golfray.sweep.choosing import best_feasible
from golfray.sweep.lane_time import attempt_seconds, lane_time
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.tracking import projection

Key = tuple[int, int] | None
"""Trial and attempt; None is the study's own run."""

ATTACHED = ("settings.json", "result.json")

SEQ_TAG = "golfray.seq"
"""The last record of the log that a run holds; written after everything else of it, so that it never says too much."""

RUNNING = "RUNNING"


class Point(NamedTuple):
    """One value of one metric; ``time`` in milliseconds since 1970."""

    name: str
    value: float
    time: int
    step: int


@dataclasses.dataclass
class Run:
    """One run as the log wants it.

    ``links`` are tags whose value is the id of another run. ``points`` are those that were not taken away yet to be
    written. ``files`` are attached once the run has ended. ``seq`` is the last record that it holds.
    """

    key: Key
    name: str
    start: int
    params: dict[str, str]
    tags: dict[str, str]
    links: dict[str, Key]
    seq: int
    status: str = RUNNING
    end: int | None = None
    points: list[Point] = dataclasses.field(default_factory=list)
    files: tuple[Path, ...] = ()


class StudyRuns:
    """The runs of a study, after the records that :meth:`apply` has seen.

    ``changed`` holds the keys of runs that have something new which is not a point of a curve; whoever writes them
    takes the keys out. ``children`` and ``changed`` keep the order in which things happened.
    """

    def __init__(self, study_folder: Path) -> None:
        self.record = StudyRecord()
        self.parent: Run | None = None
        self.children: dict[tuple[int, int], Run] = {}
        self.changed: dict[Key, None] = {}
        self._folder = study_folder
        self._curves: dict[tuple[int, int], projection.Curve] = {}
        self._notes: list[str] = []

    @property
    def open_children(self) -> list[Run]:
        """The runs of attempts that have not ended."""
        return [self.children[key] for key in self._curves]

    def run(self, key: Key) -> Run:
        """The run of this key; raises ``KeyError`` where the log has not begun it."""
        run = self.parent if key is None else self.children[key]
        if run is None:
            raise KeyError(key)
        return run

    def apply(self, event: dict[str, Any]) -> None:
        """Take in the next record of the log. Types that mean nothing to MLflow are passed over."""
        if event["event"] == "progress":
            # Not given to the record: it would keep every curve a second time.
            self._progress(event)
            return
        self.record.apply(event)
        match event["event"]:
            case "study_started":
                self._start_study(event)
            case "study_resumed":
                self._resume_study(event)
            case "attempt_started":
                child = self._child(event)
                child.tags["golfray.lane"] = str(event["lane"])
                self._touch(child, event)
            case "attempt_ended":
                self._end_attempt(event)
            case "study_ended":
                self._end_study(event)

    def _start_study(self, event: Mapping[str, Any]) -> None:
        tags = {
            "golfray.role": "study",
            "golfray.version": str(event["golfray_version"]),
            "mlflow.note.content": projection.study_note(event),
            "mlflow.source.name": "golfray tune",
        }
        self._notes = [tags["mlflow.note.content"]]
        name, params = f"study {self.record.name}", projection.study_params(event)
        self.parent = Run(None, name, milliseconds(event), params, tags, {}, event["seq"])
        self._touch(self.parent, event)

    def _resume_study(self, event: Mapping[str, Any]) -> None:
        """The study goes on as the same run: its parameters are those of its start, what changed is in its note."""
        parent = self.run(None)
        self._notes.append(projection.resumed_note(event))
        parent.tags["mlflow.note.content"] = "\n\n".join(self._notes)
        parent.tags["golfray.generation"] = str(event["generation"])
        parent.tags["golfray.version"] = str(event["golfray_version"])
        parent.status, parent.end = RUNNING, None
        self._mark_best(None)
        for name in ("golfray.reason", "golfray.best_trial"):
            parent.tags.pop(name, None)
        self._touch(parent, event)

    def _end_study(self, event: Mapping[str, Any]) -> None:
        parent, best = self.run(None), best_feasible(self.record)
        parent.tags["golfray.reason"] = projection.shorten(str(event["reason"]))
        parent.tags["golfray.best_trial"] = "none" if best is None else str(best.number)
        self._mark_best(None if best is None else (best.number, best.attempts[-1].number))
        parent.status, parent.end = "FINISHED" if event["complete"] else "KILLED", milliseconds(event)
        # One value for each driver that came to an end.
        step = int(self.record.generation)
        metrics = projection.study_metrics(lane_time(self.record))
        parent.points += [Point(name, value, milliseconds(event), step) for name, value in metrics.items()]
        self._touch(parent, event)

    def _mark_best(self, best: tuple[int, int] | None) -> None:
        """Tag the run of this key as best, and no other."""
        self.run(None).links = {} if best is None else {"golfray.best_run_id": best}
        for key, child in self.children.items():
            if (key == best) != ("golfray.best" in child.tags):
                self.changed[key] = None
                if key == best:
                    child.tags["golfray.best"] = "true"
                else:
                    del child.tags["golfray.best"]

    def _child(self, event: Mapping[str, Any]) -> Run:
        """The run of an attempt; it begins when a lane takes the attempt, so that its duration is not the queue's."""
        key = _key(event)
        if key not in self.children:
            trial = self.record.trials[key[0]]
            tries = 1 + [attempt.number for attempt in trial.attempts].index(key[1])
            tags = {
                **projection.trial_tags(trial),
                "golfray.attempt": str(key[1]),
                "golfray.job_id": str(event["job_id"]),
                "mlflow.source.name": "golfray tune",
            }
            params = projection.trial_params(trial, projection.knobs(self.record.header))
            name = projection.trial_name(trial, tries)
            links: dict[str, Key] = {"mlflow.parentRunId": None}
            self.children[key] = Run(key, name, milliseconds(event), params, tags, links, event["seq"])
            self._curves[key] = projection.Curve(projection.expected_points(trial))
            self.changed[key] = None
        return self.children[key]

    def _progress(self, event: Mapping[str, Any]) -> None:
        child, curve = self._child(event), self._curves.get(_key(event))
        # A curve is closed by the end of its attempt; what a rank still had to say came too late for it.
        if curve is not None:
            child.points += _points(event) if curve.keep(event) else []
            child.seq = event["seq"]

    def _end_attempt(self, event: Mapping[str, Any]) -> None:
        key = _key(event)
        child, outcome = self._child(event), Outcome.from_dict(event["outcome"])
        if child.end is not None:
            return  # of two ends, written by a driver that was interrupted over the first, the first is true
        trial = self.record.trials[key[0]]
        attempt = next(attempt for attempt in trial.attempts if attempt.number == key[1])
        folder = attempt.folder
        last = self._curves.pop(key).last()
        child.points += _points(last) if last is not None else []
        step = int(outcome.metrics.get("train/steps", 0))
        metrics = projection.outcome_metrics(outcome, attempt_seconds(attempt))
        child.points += [Point(name, value, milliseconds(event), step) for name, value in metrics.items()]
        child.tags.update(projection.outcome_tags(outcome, trial.share))
        child.tags["mlflow.note.content"] = projection.outcome_note(outcome, folder)
        child.status, child.end = projection.RUN_STATUS[outcome.kind], milliseconds(event)
        if folder is not None:
            names = (outcome.artifact, *ATTACHED)
            child.files = tuple(self._folder / folder / name for name in names if name is not None)
        self._touch(child, event)

    def _touch(self, run: Run, event: Mapping[str, Any]) -> None:
        run.seq = event["seq"]
        self.changed[run.key] = None


def _key(event: Mapping[str, Any]) -> tuple[int, int]:
    return int(event["trial"]), int(event["attempt"])


def milliseconds(event: Mapping[str, Any]) -> int:
    """When a record was written, as MLflow counts time."""
    return round(float(event["time"]) * 1000)


def _points(event: Mapping[str, Any]) -> list[Point]:
    """The points of a ``progress`` record."""
    time, step = milliseconds(event), int(event["step"])
    return [Point(name, value, time, step) for name, value in projection.curve_metrics(event["metrics"]).items()]
