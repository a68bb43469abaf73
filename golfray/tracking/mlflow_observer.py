"""MLflow as an Observer of the study: a parent run for the study, a child run for each attempt at a trial.

MLflow's store is a projection. Everything in it follows from the event log and the attempts' folders, runs are found
again by their tags, and timestamps are those of the events; so writing the same records twice changes nothing, and
:func:`replay` can finish or rebuild a store at any time.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord, best_feasible
from golfray.tracking import projection

_Key = tuple[int, int]
"""Trial and attempt."""

STORE_NAME = "mlflow.db"
ARTIFACTS_NAME = "mlartifacts"
ATTACHED = ("settings.json", "result.json")
PARAMS_A_CALL = 100
POINTS_A_CALL = 200
LOCK_SECONDS = 5.0

logger = logging.getLogger(__name__)


def store_uri(study_folder: Path) -> str:
    """Tracking URI of a study's store."""
    return f"sqlite:///{study_folder.resolve() / STORE_NAME}"


def load_mlflow() -> tuple[Any, Any]:
    """Import MLflow, seconds of work, and return ``(mlflow.tracking, mlflow.entities)``.

    Its telemetry is off before the import. What it and alembic log stays off the console: progress is nobody's concern,
    and what goes wrong is logged with a traceback before it is raised.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["DO_NOT_TRACK"] = "true"
    tracking, entities = importlib.import_module("mlflow.tracking"), importlib.import_module("mlflow.entities")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return tracking, entities


class TrackingError(Exception):
    """MLflow could not record an event; the message says what to do."""


class MlflowObserver:
    """Writes a study into ``<study_folder>/mlflow.db`` as it happens; only the driver's process may have one.

    Whatever breaks in MLflow is raised as ``TrackingError``. The study then tells this observer nothing more and goes
    on: the store can be rebuilt from the event log.
    """

    def __init__(self, study_folder: Path) -> None:
        self._folder = study_folder
        self._writer: _Writer | None = None

    def on_event(self, event: dict[str, Any]) -> None:
        """Write one event-log record; raises ``TrackingError``."""
        with self._explained(f"event {event.get('seq')} ({event['event']})"):
            # Made at the first event and not before: importing MLflow takes seconds, and lanes start meanwhile.
            if self._writer is None:
                self._writer = _Writer(self._folder)
            self._writer.write(event)

    def close(self) -> None:
        """Write what is buffered; raises ``TrackingError``."""
        with self._explained("the end"):
            if self._writer is not None:
                self._writer.close()

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise TrackingError(
                f"MLflow failed at {what}: {type(error).__name__}: {error}. {self._folder / LOG_NAME} has everything: "
                f"after the study delete {self._folder / STORE_NAME} and run `golfray ui {self._folder}`, "
                "which rebuilds it."
            ) from error


def replay(study_folder: Path) -> None:
    """Write the whole event log of a study to its MLflow store again; what is there already stays as it is.

    Only while no driver runs the study. Raises what MLflow raises, and ``OSError`` or ``EventLogError`` where the log
    cannot be read.
    """
    writer = _Writer(study_folder)
    for event in read_events(study_folder / LOG_NAME):
        writer.write(event)
    writer.close()


class _Child:
    """One attempt's run: its id, its thinned curve, and the points not yet written."""

    def __init__(self, run_id: str, expected_points: int) -> None:
        self.run_id = run_id
        self.curve = projection.Curve(expected_points)
        self.points: list[Any] = []
        self.ended = False


class _Writer:
    """The study as MLflow runs. Raises whatever MLflow raises."""

    def __init__(self, study_folder: Path) -> None:
        tracking, self._entities = load_mlflow()
        self._folder = study_folder
        _check_store(study_folder / STORE_NAME)
        uri = store_uri(study_folder)
        self._client = tracking.MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._record = StudyRecord()
        self._children: dict[_Key, _Child] = {}
        self._found: dict[_Key | None, Any] = {}
        self._experiment = ""
        self._parent = ""
        self._time = 0

    def write(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        self._time = _milliseconds(event)
        if kind == "progress":
            self._progress(event)
            return
        # Curves are not kept in memory a second time: nothing below needs them.
        self._record.apply(event)
        if kind == "study_started":
            self._start_study(event)
        elif kind == "attempt_started":
            self._client.set_tag(self._child(event).run_id, "golfray.lane", str(event["lane"]))
        elif kind == "attempt_ended":
            self._end_attempt(event)
        elif kind == "study_ended":
            self._end_study()

    def close(self) -> None:
        """Write what is buffered; runs that the log left open are KILLED, so that nothing looks alive for ever."""
        for child in self._children.values():
            if not child.ended:
                self._flush(child)
                self._client.set_terminated(child.run_id, "KILLED", self._time)
        if self._parent and self._record.end_reason is None:
            self._client.set_terminated(self._parent, "KILLED", self._time)

    def _start_study(self, event: Mapping[str, Any]) -> None:
        name, note = self._record.name, projection.study_note(event)
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            location = (self._folder.resolve() / ARTIFACTS_NAME).as_uri()
            self._experiment = self._client.create_experiment(name, artifact_location=location)
        else:
            self._experiment = experiment.experiment_id
            self._find_runs()
        for tag, value in {
            "mlflow.note.content": note,
            "mlflow.experimentKind": "custom_model_development",
            "mlflow.experiment.primaryMetric.name": "bpb/roundtrip",
            "mlflow.experiment.primaryMetric.greaterIsBetter": "false",
            f"mlflow.sharedViewState.{projection.VIEW_NAME}": projection.trials_view(event),
        }.items():
            self._client.set_experiment_tag(self._experiment, tag, value)
        tags = {
            "golfray.role": "study",
            "golfray.version": str(event["golfray_version"]),
            "mlflow.note.content": note,
            "mlflow.source.name": "golfray tune",
        }
        self._parent = self._run(None, f"study {name}", tags, projection.study_params(event))

    def _find_runs(self) -> None:
        token = None
        while True:
            page = self._client.search_runs([self._experiment], page_token=token)
            for run in page:
                tags = run.data.tags
                is_trial = "golfray.trial" in tags
                key = (int(tags["golfray.trial"]), int(tags["golfray.attempt"])) if is_trial else None
                self._found[key] = run
            token = page.token
            if not token:
                return

    def _run(self, key: _Key | None, name: str, tags: dict[str, str], params: dict[str, str]) -> str:
        """The run of this key, found or created, with its tags and parameters."""
        if key in self._found:
            run_id = str(self._found[key].info.run_id)
            self._client.update_run(run_id, status="RUNNING")
        else:
            run = self._client.create_run(self._experiment, start_time=self._time, run_name=name, tags=tags)
            run_id = str(run.info.run_id)
        entries = [self._entities.Param(param, value) for param, value in params.items()]
        for first in range(0, len(entries), PARAMS_A_CALL):
            self._client.log_batch(run_id, params=entries[first : first + PARAMS_A_CALL])
        return run_id

    def _child(self, event: Mapping[str, Any]) -> _Child:
        """The run of an attempt; it begins when a lane takes the attempt, so that its duration is not the queue's."""
        key = (int(event["trial"]), int(event["attempt"]))
        if key not in self._children:
            trial = self._record.trials[key[0]]
            tries = 1 + [attempt.number for attempt in trial.attempts].index(key[1])
            tags = {
                **projection.trial_tags(trial),
                "golfray.attempt": str(key[1]),
                "golfray.job_id": str(event["job_id"]),
                "mlflow.parentRunId": self._parent,
                "mlflow.source.name": "golfray tune",
            }
            run_id = self._run(
                key,
                projection.trial_name(trial, tries),
                tags,
                projection.trial_params(trial, projection.knobs(self._record.header)),
            )
            self._children[key] = _Child(run_id, projection.expected_points(trial))
        return self._children[key]

    def _progress(self, event: Mapping[str, Any]) -> None:
        child = self._child(event)
        if child.curve.keep(event):
            child.points += self._points(event)
            if len(child.points) >= POINTS_A_CALL:
                self._flush(child)

    def _points(self, event: Mapping[str, Any]) -> list[Any]:
        time, step = _milliseconds(event), int(event["step"])
        metrics = projection.curve_metrics(event["metrics"])
        return [self._entities.Metric(name, value, time, step) for name, value in metrics.items()]

    def _flush(self, child: _Child) -> None:
        if child.points:
            self._client.log_batch(child.run_id, metrics=child.points)
            child.points = []

    def _end_attempt(self, event: Mapping[str, Any]) -> None:
        child, outcome = self._child(event), Outcome.from_dict(event["outcome"])
        trial = self._record.trials[int(event["trial"])]
        folder = next(attempt.folder for attempt in trial.attempts if attempt.number == event["attempt"])
        last = child.curve.last()
        if last is not None:
            child.points += self._points(last)
        metrics = projection.outcome_metrics(outcome)
        step = int(outcome.metrics.get("train/steps", 0))
        child.points += [self._entities.Metric(name, value, self._time, step) for name, value in metrics.items()]
        self._flush(child)
        tags = projection.outcome_tags(outcome)
        tags["mlflow.note.content"] = projection.outcome_note(outcome, folder)
        self._client.log_batch(child.run_id, tags=self._tags(tags))
        if folder is not None:
            self._attach(child.run_id, self._folder / folder, outcome.artifact)
        self._client.set_terminated(child.run_id, projection.RUN_STATUS[outcome.kind], self._time)
        child.ended = True

    def _attach(self, run_id: str, folder: Path, artifact: str | None) -> None:
        for name in (artifact, *ATTACHED):
            if name is not None and (folder / name).is_file():
                self._client.log_artifact(run_id, str(folder / name))
        if artifact is not None and not (folder / artifact).is_file():
            logger.warning("The artifact %s of a trial is missing, so MLflow has none for it.", folder / artifact)

    def _end_study(self) -> None:
        best = best_feasible(self._record)
        key = (best.number, best.attempts[-1].number) if best is not None else None
        for other, run in self._found.items():
            if other not in (key, None) and "golfray.best" in run.data.tags:
                self._client.delete_tag(run.info.run_id, "golfray.best")
        tags = {"golfray.reason": projection.shorten(str(self._record.end_reason)), "golfray.best_trial": "none"}
        if key is not None:
            run_id = self._children[key].run_id
            self._client.set_tag(run_id, "golfray.best", "true")
            tags.update({"golfray.best_trial": str(key[0]), "golfray.best_run_id": run_id})
        self._client.log_batch(self._parent, tags=self._tags(tags))
        self._client.set_terminated(self._parent, "FINISHED" if self._record.complete else "KILLED", self._time)

    def _tags(self, tags: Mapping[str, str]) -> list[Any]:
        return [self._entities.RunTag(name, value) for name, value in tags.items()]


def _check_store(path: Path) -> None:
    """Raise ``sqlite3.Error`` where the store cannot be written: MLflow would try for minutes while trials wait."""
    with contextlib.closing(sqlite3.connect(path, timeout=LOCK_SECONDS)) as store:
        store.execute("BEGIN IMMEDIATE")
        store.rollback()


def _milliseconds(event: Mapping[str, Any]) -> int:
    return round(float(event["time"]) * 1000)
