"""Studies without training: a real event log, written record by record, with real files in the attempts' folders."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golfray.core.settings import RunSettings
from golfray.sweep.events import LOG_NAME, EventLog, read_events
from golfray.sweep.observer import Observer
from golfray.sweep.outcome import Kind, Outcome
from tests.tracking.stores import MlflowServer

CAP_BYTES = 500_000
BYTES_CODE = 48_000
PHASES = {"data": 0.2, "compile": 0.9, "train": 15.01, "validate": 1.1, "export": 0.7, "score": 1.2}
FIDELITY = {"device": "cpu", "dtype": "float32", "compiled": False, "workers": 2, "stop": "15 s"}


class StudyLog:
    """Appends what a study would and tells the observers, in order, after each record was written."""

    def __init__(self, folder: Path, *observers: Observer) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.observers = observers
        self._log = EventLog(folder / LOG_NAME)
        self._trials = sum(event["event"] == "trial_asked" for event in read_events(folder / LOG_NAME))

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        record = self._log.append(event, **fields)
        for observer in self.observers:
            observer.on_event(record)
        return record

    def start(self, **changes: Any) -> None:
        header: dict[str, Any] = {
            "study": "muon",
            "golfray_version": "0.1.0",
            "space": {
                "fixed": {},
                "implied": {},
                "knobs": {
                    "optimizer.matrix_lr": {"type": "float", "low": 0.01, "high": 0.16, "log": True},
                    "muon.momentum_end": {"type": "float", "low": 0.9, "high": 0.99},
                    "export.bits_mlp": {"type": "int", "low": 4, "high": 8},
                },
            },
            "preset": "parameter-golf",
            "scale": "laptop",
            "workers": 2,
            "budget": {"trials": 8, "minutes": 8.0},
            "seed": 1,
            "sampler": "tpe",
            "cap_bytes": CAP_BYTES,
            "bytes_code": BYTES_CODE,
            "slots": 1,
            "describe": ["1 lane of 2 workers: 2 CPU cores, 1 a worker"],
            "data": {
                "folder": "corpora/kjv",
                "name": "King James Bible, 60 chapters held out",
                "reference": {"uniform": 3.3651, "unigram": 2.9187, "zlib -9": 2.5901, "xz -9e": 2.2302},
                "warning": "Scores on this demo corpus are no FineWeb scores.",
            },
        }
        self.append("study_started", **{**header, **changes})

    def resume(self, generation: int, **changes: Any) -> None:
        """``study_resumed``, by another driver."""
        fields: dict[str, Any] = {
            "generation": generation,
            "golfray_version": "0.1.1",
            "host": "other",
            "changes": ["budget: 8 trials became 9"],
            "budget": {"trials": 9, "minutes": 8.0},
            "slots": 1,
            "describe": ["1 lane of 2 workers: 2 CPU cores, 1 a worker"],
            "left_space": [],
            "reopened": [],
        }
        self.append("study_resumed", **{**fields, **changes})

    def ask(self, role: str = "sampler", params: dict[str, Any] | None = None, **changes: Any) -> int:
        """``trial_asked``; returns the trial's number."""
        number = self._trials
        self._trials += 1
        knobs = {"optimizer.matrix_lr": 0.04, "muon.momentum_end": 0.95, "export.bits_mlp": 6} | (params or {})
        settings = dataclasses.asdict(RunSettings(cap_bytes=CAP_BYTES, bytes_code=BYTES_CODE))
        # No two are the same configuration.
        settings["schedule"]["warmdown_share"] = number / 1000
        for path, value in knobs.items():
            section, name = path.split(".")
            settings[section][name] = value
        fields = {"told": True, "told_reason": None, "settings": settings, "seed": 1337 + number, "replicate_of": None}
        self.append("trial_asked", trial=number, role=role, params=knobs, **{**fields, **changes})
        return number

    def submit(self, trial: int, attempt: int = 1) -> None:
        folder = f"trials/{trial:03d}/attempt_{attempt}"
        job = f"{trial:03d}-{attempt}"
        self.append("attempt_submitted", trial=trial, attempt=attempt, job_id=job, folder=folder)
        self.append("attempt_started", trial=trial, attempt=attempt, job_id=job, lane="lane-0")

    def phase(self, trial: int, phase: str, attempt: int = 1) -> None:
        self.append("phase", trial=trial, attempt=attempt, job_id=f"{trial:03d}-{attempt}", phase=phase)

    def progress(self, trial: int, step: int, loss: float, attempt: int = 1) -> None:
        metrics = {
            "step": step,
            "train/loss": loss,
            "train/lr_multiplier": 1.0,
            "train/step_ms": 60.0,
            "train/tokens_per_s": 68_000.0,
            "elapsed_s": step * 0.06,
        }
        self.append(
            "progress", trial=trial, attempt=attempt, job_id=f"{trial:03d}-{attempt}", step=step, metrics=metrics
        )

    def finish(self, trial: int, outcome: Outcome, attempt: int = 1) -> None:
        self.append(
            "attempt_ended", trial=trial, attempt=attempt, job_id=f"{trial:03d}-{attempt}", outcome=outcome.to_dict()
        )

    def run(
        self,
        bpb: float,
        total: int,
        role: str = "sampler",
        params: dict[str, Any] | None = None,
        points: int = 3,
        **asked: Any,
    ) -> int:
        """A whole trial that ran to its end: scored if ``total`` fits under the cap, else infeasible."""
        trial = self.ask(role, params, **asked)
        self.submit(trial)
        for point in range(points):
            self.progress(trial, 10 * (point + 1), 5.0 * math.exp(-point / max(1, points)) + bpb / 10)
        folder = self.folder / f"trials/{trial:03d}/attempt_1"
        folder.mkdir(parents=True)
        (folder / "final_model.int8.ptz").write_bytes(b"weights")
        (folder / "settings.json").write_text("{}")
        outcome = ran_to_end(bpb, total)
        (folder / "result.json").write_text(json.dumps(outcome.to_dict()))
        self.finish(trial, outcome)
        return trial

    def end(self, reason: str = "budget: 8 trials") -> None:
        self.append("study_ended", reason=reason, complete=True)
        self.close()

    def close(self) -> None:
        self._log.close()
        for observer in self.observers:
            observer.close()


def ran_to_end(bpb: float, total: int) -> Outcome:
    """Outcome of a trial that trained, exported, reloaded and scored."""
    margin = CAP_BYTES - total
    metrics = {
        "bpb/prequant": bpb - 0.002,
        "bpb/roundtrip": bpb,
        "val_loss/prequant": (bpb - 0.002) * 1.6,
        "val_loss/roundtrip": bpb * 1.6,
        "bytes/code": BYTES_CODE,
        "bytes/model": total - BYTES_CODE,
        "bytes/total": total,
        "bytes/margin": margin,
        "train/loss": 3.1,
        "train/steps": 250,
        "train/tokens": 1_024_000,
        "train/step_ms": 60.1,
        "train/tokens_per_s": 68_100.0,
        "train/seconds": 15.01,
        "train/data_passes": 0.6,
    }
    fits = margin >= 0
    return Outcome(
        kind=Kind.SCORED if fits else Kind.INFEASIBLE,
        reason="round trip scored" if fits else f"{-margin:,} bytes over the cap of {CAP_BYTES:,}",
        metrics=metrics,
        phases=PHASES,
        artifact="final_model.int8.ptz",
        artifact_sha256="ab" * 32,
        fidelity=FIDELITY,
    )


def ended_early(kind: Kind, reason: str, **metrics: float) -> Outcome:
    """Outcome of a trial that exported nothing."""
    return Outcome(kind=kind, reason=reason, metrics=metrics, phases={"train": 3.0}, fidelity=FIDELITY)


def mixed_study(folder: Path, *observers: Observer) -> StudyLog:
    """Ten trials: the lowest bpb belongs to an over-cap one; one diverged, one crashed and ran again, one cancelled."""
    log = StudyLog(folder, *observers)
    log.start()
    log.run(2.0712, 480_000, role="preset", points=40)
    log.run(2.0650, 560_000, role="preset_8bit", params={"export.bits_mlp": 8}, told=False)
    log.run(2.0775, 480_200, role="replicate", told=False, replicate_of=0)
    log.run(2.0660, 480_100, role="replicate", told=False, replicate_of=0)
    log.run(1.9987, 470_000, params={"optimizer.matrix_lr": 0.0712})
    log.run(1.9412, 530_000, params={"optimizer.matrix_lr": 0.0954, "export.bits_mlp": 8})
    trial = log.ask(params={"optimizer.matrix_lr": 0.1512})
    log.submit(trial)
    log.progress(trial, 10, math.nan)
    log.finish(trial, ended_early(Kind.DIVERGED, "train/loss is NaN at step 10", **{"train/loss": math.nan}))
    trial = log.ask(params={"optimizer.matrix_lr": 0.0333})
    log.submit(trial)
    log.progress(trial, 10, 5.0)
    log.finish(trial, ended_early(Kind.CRASHED, "rank 1: worker process died (signal 9)"))
    log.submit(trial, attempt=2)
    log.finish(trial, ended_early(Kind.CRASHED, "rank 0: out of memory"), attempt=2)
    log.run(2.0311, 455_000, params={"optimizer.matrix_lr": 0.0512, "export.bits_mlp": 5})
    trial = log.ask(params={"optimizer.matrix_lr": 0.0601})
    log.submit(trial)
    log.finish(trial, ended_early(Kind.CANCELLED, "interrupted from the keyboard"))
    log.end()
    return log


def resumed_study(folder: Path, *observers: Observer) -> None:
    """Two drivers: the first is killed in trial 2, the second ends its attempt, runs it again and ends the study.

    Before that the study had ended once, with another best trial than at last.
    """
    first = StudyLog(folder, *observers)
    first.start()
    first.run(2.0712, 480_000, role="preset")
    first.run(2.0650, 560_000, role="preset_8bit", told=False)
    first.append("study_ended", reason="interrupted", complete=False)
    first.resume(2)
    lost = first.ask()
    first.submit(lost)
    first.phase(lost, "train")
    for step in range(1, 6):
        first.progress(lost, 10 * step, 5.0 / step)
    first.close()
    second = StudyLog(folder, *observers)
    second.resume(3)
    second.finish(lost, ended_early(Kind.PREEMPTED, "driver lost"))
    second.submit(lost, attempt=2)
    for step in range(1, 4):
        second.progress(lost, 10 * step, 5.0 / step, attempt=2)
    second.finish(lost, ran_to_end(1.9, 470_000), attempt=2)
    second.end("budget: 9 trials")


@pytest.fixture(name="StudyLog")
def study_log_class() -> type[StudyLog]:
    return StudyLog


@pytest.fixture(name="ran_to_end", scope="session")
def ran_to_end_function() -> Any:
    return ran_to_end


@pytest.fixture(name="ended_early", scope="session")
def ended_early_function() -> Any:
    return ended_early


@pytest.fixture(name="mixed_study", scope="session")
def mixed_study_function() -> Any:
    return mixed_study


@pytest.fixture(name="resumed_study", scope="session")
def resumed_study_function() -> Any:
    return resumed_study


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """A server for the tests of a module: seconds to start."""
    server = MlflowServer(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database without runs: seconds to make, nothing to copy."""
    from golfray.tracking.client import load_mlflow, open_store
    from golfray.tracking.store import Store

    store = Store.of(tmp_path_factory.mktemp("empty"))
    open_store(load_mlflow(), store)
    assert store.path is not None
    return store.path


@pytest.fixture
def study_folder(tmp_path: Path, empty_database: Path) -> Path:
    """The folder of a study whose store is there and empty."""
    folder = tmp_path / "study"
    folder.mkdir()
    shutil.copy(empty_database, folder / "mlflow.db")
    return folder
