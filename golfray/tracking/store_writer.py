"""Brings an MLflow store to what the event log says, whatever is in it already: missing, half written or complete.

Nothing is written that is there, so writing the same log twice changes nothing, and a store that failed at any moment
is completed by writing the log to it again.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from golfray.tracking import projection
from golfray.tracking.client import explained, load_mlflow, open_store, reason_of
from golfray.tracking.store import Store, TrackingError
from golfray.tracking.study_runs import ATTACHED, RUNNING, SEQ_TAG, Key, Point, Run, StudyRuns

POINTS_A_CALL = 200
ENTRIES_A_CALL = 100
"""MLflow takes at most 1,000 metrics, 100 parameters and 100 tags a call."""

RUNS_A_PAGE = 100
ATTACHED_TAG = "golfray.attached"


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a writer did to a store.

    ``unchanged`` runs were complete; ``duplicates`` were deleted, as MLflow deletes: they can be restored. ``missing``
    artifacts are no longer in the study's folder; ``left_out`` files could not be attached, because the server keeps
    them on a disk of its own.
    """

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    points: int = 0
    files: int = 0
    duplicates: int = 0
    missing: int = 0
    left_out: int = 0

    @property
    def runs(self) -> int:
        """How many runs the study has."""
        return self.created + self.updated + self.unchanged


@dataclasses.dataclass
class _Stored:
    """One run as the store has it. ``points`` are those that it is known to have; None: not known yet."""

    run_id: str
    artifact_uri: str
    params: dict[str, str]
    tags: dict[str, str]
    status: str
    end: int | None
    metrics: Sequence[str]
    points: set[tuple[str, str, int, int]] | None


class StoreWriter:
    """Writes the records of one study to one store; the only writer of these runs while it lives.

    Making one imports MLflow and opens the store. Every method raises ``TrackingError`` where the store fails; what it
    then holds of the last call is unknown, so go on with a new writer, from the log's first record.
    """

    def __init__(self, study_folder: Path, store: Store) -> None:
        self._store = store
        self._mlflow = load_mlflow()
        self._client = open_store(self._mlflow, store)
        self._runs = StudyRuns(study_folder)
        self._stored: dict[Key, _Stored] = {}
        self._created: set[Key] = set()
        self._updated: set[Key] = set()
        self._wrote: collections.Counter[str] = collections.Counter()
        self._experiment = ""
        self._to_attach: dict[Key, None] = {}
        self._stale: dict[Key, None] = {}

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        updated = self._updated - self._created
        unchanged = len(self._stored) - len(self._created) - len(updated)
        return Counts(created=len(self._created), updated=len(updated), unchanged=unchanged, **self._wrote)

    def write(self, events: Iterable[dict[str, Any]]) -> None:
        """Take in records and write what they ended; the rest is written by :meth:`write_due` or :meth:`finish`."""
        for event in events:
            self._runs.apply(event)
            with explained(self._mlflow, self._store):
                if event["event"] == "study_started":
                    self._open_experiment()
                elif event["event"] == "attempt_ended":
                    # At once, so that no more than the open curves are held in memory.
                    self._bring(self._runs.children[int(event["trial"]), int(event["attempt"])])

    def write_due(self) -> None:
        """Write what is new but for curves with few new points, which are written together later."""
        due = [child for child in self._runs.open_children if len(child.points) >= POINTS_A_CALL]
        self._write_runs(due)

    def finish(self) -> None:
        """Write everything."""
        self._write_runs(self._runs.open_children)

    def _write_runs(self, children: Iterable[Run]) -> None:
        with explained(self._mlflow, self._store):
            for child in children:
                self._bring(child)
            for key in list(self._runs.changed):
                self._bring(self._runs.run(key))
            self._delete_stale_tags()
        # Last, so that files that a store does not take keep nothing else back.
        self._attach()

    def _open_experiment(self) -> None:
        """Find or make the experiment, and find what it has of this study."""
        header, name = self._runs.record.header, self._runs.record.name
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            location = self._store.artifact_location(name)
            self._experiment = self._client.create_experiment(name, artifact_location=location)
            known = {}
        elif not experiment.experiment_id:
            raise TrackingError(f"MLflow at {self._store.name}: something else answers there", "name another address")
        elif experiment.lifecycle_stage != "active":
            raise TrackingError(
                f"MLflow at {self._store.name}: experiment {name} was deleted there",
                f"bring it back: `mlflow experiments restore -x {experiment.experiment_id}`",
            )
        else:
            self._experiment = experiment.experiment_id
            known = experiment.tags
        # A server may keep several studies of this name in one experiment: what the first of them said stays.
        for tag, value in {
            "mlflow.note.content": projection.study_note(header),
            "mlflow.experimentKind": "custom_model_development",
            "mlflow.experiment.primaryMetric.name": "bpb/roundtrip",
            "mlflow.experiment.primaryMetric.greaterIsBetter": "false",
            f"mlflow.sharedViewState.{projection.VIEW_NAME}": projection.trials_view(header),
        }.items():
            if tag not in known:
                self._client.set_experiment_tag(self._experiment, tag, value)
        self._find_runs()

    def _find_runs(self) -> None:
        """Find this study's runs: its own by when the study started, an attempt's by its parent, trial and number.

        Of two runs for the same thing the one with more in it stays. The other was made by a request that we had given
        up and the server had not.
        """
        start = self._runs.run(None).start
        parents = self._search(f"attributes.start_time = {start} and tags.`golfray.role` = 'study'")
        children: dict[Key, list[Any]] = {}
        families = {}
        for parent in parents:
            found = self._search(f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
            families[parent.info.run_id] = len(found)
            for run in found:
                tags = run.data.tags
                children.setdefault((int(tags["golfray.trial"]), int(tags["golfray.attempt"])), []).append(run)
        parents.sort(key=lambda run: (-families[run.info.run_id], run.info.run_id))
        for runs in children.values():
            runs.sort(key=lambda run: (-len(run.data.metrics), -len(run.data.params), run.info.run_id))
        children[None] = parents
        for key, runs in children.items():
            for run in runs[1:]:
                self._client.delete_run(run.info.run_id)
                self._wrote["duplicates"] += 1
            if runs:
                self._stored[key] = _Stored(
                    run_id=runs[0].info.run_id,
                    artifact_uri=runs[0].info.artifact_uri,
                    params=dict(runs[0].data.params),
                    tags=dict(runs[0].data.tags),
                    status=runs[0].info.status,
                    end=runs[0].info.end_time,
                    metrics=list(runs[0].data.metrics),
                    points=None,
                )

    def _search(self, query: str) -> list[Any]:
        found: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment], query, max_results=RUNS_A_PAGE, page_token=token)
            found += page
            token = page.token
            if not token:
                return found

    def _bring(self, run: Run) -> None:
        """Write of this run what the store lacks."""
        stored = self._stored_run(run)
        self._bring_points(run, stored)
        self._bring_status(run, stored)
        self._bring_tags(run, stored)
        self._runs.changed.pop(run.key, None)
        # The log may still say otherwise, such as which run is best, so these go once all of it has been read.
        if self._stale_tags(run, stored):
            self._stale[run.key] = None
        if run.end is not None and run.files:
            self._to_attach[run.key] = None

    def _stored_run(self, run: Run) -> _Stored:
        """The run as stored, made where it is not there, with all its parameters."""
        stored = self._stored.get(run.key)
        if stored is None:
            tags = self._tags(run)
            made = self._client.create_run(self._experiment, start_time=run.start, run_name=run.name, tags=tags)
            stored = _Stored(made.info.run_id, made.info.artifact_uri, {}, tags, RUNNING, None, [], set())
            self._stored[run.key] = stored
            self._created.add(run.key)
        # MLflow never changes a parameter: where one differs, another version wrote it.
        lacking = [(name, value) for name, value in run.params.items() if name not in stored.params]
        for some in _slices(lacking, ENTRIES_A_CALL):
            self._client.log_batch(stored.run_id, params=[self._mlflow.entities.Param(*entry) for entry in some])
            stored.params.update(some)
            self._updated.add(run.key)
        return stored

    def _tags(self, run: Run) -> dict[str, str]:
        """The tags of a run but for its seq; runs that it links to are made where they are not there."""
        named = {tag: self._stored_run(self._runs.run(key)).run_id for tag, key in run.links.items()}
        return {**run.tags, **named}

    def _bring_points(self, run: Run, stored: _Stored) -> None:
        points, run.points = run.points, []
        if stored.points is None:
            if stored.tags.get(SEQ_TAG) == str(run.seq):
                return
            stored.points = self._history(stored)
        lacking = [point for point in points if _identity(point) not in stored.points]
        for some in _slices(lacking, POINTS_A_CALL):
            metrics = [self._mlflow.entities.Metric(*point) for point in some]
            self._client.log_batch(stored.run_id, metrics=metrics)
            self._wrote["points"] += len(some)
            self._updated.add(run.key)
        # From here on what comes is new: nobody else writes this run.
        stored.points = set()

    def _history(self, stored: _Stored) -> set[tuple[str, str, int, int]]:
        return {
            _identity(Point(point.key, point.value, point.timestamp, point.step))
            for name in stored.metrics
            for point in self._client.get_metric_history(stored.run_id, name)
        }

    def _bring_status(self, run: Run, stored: _Stored) -> None:
        if run.status == stored.status and (run.end is None or run.end == stored.end):
            return
        if run.end is None:
            self._client.update_run(stored.run_id, status=run.status)
        else:
            self._client.set_terminated(stored.run_id, run.status, run.end)
            stored.end = run.end
        stored.status = run.status
        self._updated.add(run.key)

    def _bring_tags(self, run: Run, stored: _Stored) -> None:
        wanted = {**self._tags(run), SEQ_TAG: str(run.seq)}
        lacking = {tag: value for tag, value in wanted.items() if stored.tags.get(tag) != value}
        for some in _slices(list(lacking.items()), ENTRIES_A_CALL):
            self._client.log_batch(stored.run_id, tags=[self._mlflow.entities.RunTag(*entry) for entry in some])
            stored.tags.update(some)
            self._updated.add(run.key)

    def _stale_tags(self, run: Run, stored: _Stored) -> list[str]:
        """Tags of ours that the run should not have any more."""
        wanted = (*run.tags, *run.links, SEQ_TAG, ATTACHED_TAG)
        return [tag for tag in stored.tags if tag.startswith("golfray.") and tag not in wanted]

    def _delete_stale_tags(self) -> None:
        for key in list(self._stale):
            stored = self._stored[key]
            for tag in self._stale_tags(self._runs.run(key), stored):
                self._client.delete_tag(stored.run_id, tag)
                del stored.tags[tag]
                self._updated.add(key)
            del self._stale[key]

    def _attach(self) -> None:
        """Attach the files of runs that have ended."""
        for key in list(self._to_attach):
            run, stored = self._runs.run(key), self._stored[key]
            attached = [name for name in stored.tags.get(ATTACHED_TAG, "").split(", ") if name]
            lacking = [path for path in run.files if path.name not in attached]
            there = [path for path in lacking if path.is_file()]
            self._wrote["missing"] += sum(path not in there and path.name not in ATTACHED for path in lacking)
            if not self._takes_files(stored):
                self._wrote["left_out"] += len(there)
            elif there:
                try:
                    self._attach_to(stored, there, attached)
                except Exception as error:
                    # Every kind of file store has errors of its own, and a library of its own that may be missing.
                    raise TrackingError(
                        f"MLflow at {self._store.name} takes no files for {stored.artifact_uri}: {reason_of(error)}",
                        self._store.advice(error),
                    ) from error
                self._updated.add(key)
            del self._to_attach[key]

    def _attach_to(self, stored: _Stored, paths: list[Path], attached: list[str]) -> None:
        for path in paths:
            self._client.log_artifact(stored.run_id, str(path))
            self._wrote["files"] += 1
        names = ", ".join([*attached, *(path.name for path in paths)])
        self._client.set_tag(stored.run_id, ATTACHED_TAG, names)
        stored.tags[ATTACHED_TAG] = names

    def _takes_files(self, stored: _Stored) -> bool:
        """A server elsewhere that names a folder means one of its own machine, which we cannot reach."""
        is_folder = stored.artifact_uri.startswith(("file:", "/"))
        return self._store.keeps_files_here or not is_folder


def _identity(point: Point) -> tuple[str, str, int, int]:
    """What makes a point itself; NaN equals NaN."""
    return point.name, repr(float(point.value)), point.time, point.step


def _slices(entries: list[Any], size: int) -> Iterator[list[Any]]:
    return (entries[first : first + size] for first in range(0, len(entries), size))
