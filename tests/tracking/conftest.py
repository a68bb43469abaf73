"""Studies without training: a real event log, written record by record, with real files in the attempts' folders."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from golfray.core.settings import RunSettings
from golfray.sweep.events import LOG_NAME, EventLog
from golfray.sweep.observer import Observer
from golfray.sweep.outcome import Kind, Outcome

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
        self._trials = 0

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

    def ask(self, role: str = "sampler", params: dict[str, Any] | None = None, **changes: Any) -> int:
        """``trial_asked``; returns the trial's number."""
        number = self._trials
        self._trials += 1
        knobs = {"optimizer.matrix_lr": 0.04, "muon.momentum_end": 0.95, "export.bits_mlp": 6} | (params or {})
        settings = dataclasses.asdict(RunSettings(cap_bytes=CAP_BYTES, bytes_code=BYTES_CODE))
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
