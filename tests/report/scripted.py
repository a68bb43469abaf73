"""A study's events written by hand, with times of their own: what is printed of them is the same on every machine."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from golfray.config.resolve import resolve
from golfray.sweep.budget import StudyBudget
from golfray.sweep.events import encode_record
from golfray.sweep.outcome import Kind, Outcome

STARTED = 1_800_000_000.0
CAP_BYTES = 339_000
BYTES_CODE = 44_800
FIDELITY = {
    "device": "cpu",
    "dtype": "float32",
    "compiled": True,
    "workers": 2,
    "threads": 1,
    "stop": "wallclock",
}
PHASES = {"data": 0.2, "compile": 3.1, "train": 15.0, "validate": 0.9, "export": 0.4, "score": 0.9}
SPACE = {
    "name": "muon",
    "replicates": 3,
    "fixed": {},
    "implied": {"export.scale_floor": 0.0},
    "knobs": {
        "optimizer.matrix_lr": {"type": "float", "low": 0.015, "high": 0.15},
        "muon.weight_decay": {"type": "float", "low": 0.01, "high": 0.5},
        "export.bits_mlp": {"type": "int", "low": 4, "high": 8},
    },
}


class Script:
    """Collects events; every one comes ``after`` so many seconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = STARTED
        self._trials = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.events)

    def add(self, event: str, after: float = 0.0, **fields: Any) -> None:
        self.now += after
        self.events.append({"seq": len(self.events), "time": self.now, "event": event, **fields})

    def start(self, trials: int | None = 8, minutes: float | None = None, slots: int = 1) -> None:
        self.add("study_started", study="muon", generation=1, **self._in_force(trials, minutes, slots, self.now))

    def resume(self, generation: int, changes: list[str], trials: int = 8, after: float = 600.0) -> None:
        """Another driver takes over; what the lost one had running is ended by :meth:`end`."""
        self.add(
            "study_resumed",
            after,
            generation=generation,
            changes=changes,
            left_space=[],
            reopened=[],
            torn=None,
            **self._in_force(trials, None, 1, self.now + after),
        )

    def ask(
        self, role: str = "sampler", refused: str | None = None, foreseen: dict[str, float] | None = None, **knobs: Any
    ) -> int:
        number, self._trials = self._trials, self._trials + 1
        # Of a trial's settings, those that are looked at.
        settings: dict[str, Any] = {
            "optimizer": {"matrix_lr": 0.04},
            "muon": {"weight_decay": 0.0},
            "export": {"bits_mlp": 6, "bits_embedding": 8, "scale_floor": 0.0},
            "stop": {"steps": None, "seconds": 15.0},
            # No two are the same configuration.
            "schedule": {"warmdown_share": number / 1000},
            "cap_bytes": CAP_BYTES,
            "bytes_code": BYTES_CODE,
        }
        for path, value in knobs.items():
            section, name = path.split("__")
            settings.setdefault(section, {})[name] = value
        params = {path.replace("__", "."): value for path, value in knobs.items()}
        self.add(
            "trial_asked",
            0.1,
            trial=number,
            role=role,
            params=params,
            told=role != "replicate",
            told_reason="a replicate measures noise" if role == "replicate" else None,
            settings=None if refused and foreseen is None else settings,
            refused=refused,
            foreseen=foreseen,
            too_large=foreseen is not None,
            seed=1337 + number if role == "replicate" else 1337,
            replicate_of=0 if role == "replicate" else None,
            share=1.0,
            promotes=None,
        )
        return number

    def submit(self, trial: int, attempt: int = 1, lane: str = "lane-0", nodes: Sequence[dict[str, Any]] = ()) -> None:
        where = self._where(trial, attempt)
        self.add("attempt_submitted", **where, folder=f"trials/{trial:04d}/attempt-{attempt}")
        self.add("attempt_started", 0.5, **where, lane=lane, nodes=list(nodes))

    def phase(self, trial: int, phase: str, after: float = 1.0, attempt: int = 1) -> None:
        self.add("phase", after, **self._where(trial, attempt), phase=phase)

    def point(self, trial: int, step: int, elapsed: float, loss: float, attempt: int = 1) -> None:
        metrics = {"elapsed_s": elapsed, "train/loss": loss, "train/lr_multiplier": 1.0}
        self.add("progress", 1.0, **self._where(trial, attempt), step=step, metrics=metrics)

    def end(self, trial: int, outcome: Outcome, attempt: int = 1, final: bool = True, after: float = 5.0) -> None:
        where = self._where(trial, attempt)
        self.add("attempt_ended", after, **where, outcome=outcome.to_dict(), final=final, size_reserve=0.0)

    def run(self, bpb: float, total: int, role: str = "sampler", **knobs: Any) -> int:
        """A trial that runs to its end."""
        trial = self.ask(role, **knobs)
        self.submit(trial)
        for phase in ("data", "compile", "train"):
            self.phase(trial, phase)
        for step in (60, 120, 180):
            self.point(trial, step, step / 16, 6.0 - step / 60)
        self.phase(trial, "validate", 4.0)
        self.end(trial, ran(bpb, total))
        return trial

    def refuse_for_size(self, over: int, **knobs: Any) -> int:
        """A point that was foreseen to be so many bytes over the cap."""
        foreseen = {"bytes/foreseen_total": float(CAP_BYTES + over), "bytes/foreseen_margin": float(-over)}
        trial = self.ask(refused=f"about {CAP_BYTES + over:,} bytes", foreseen=foreseen, **knobs)
        self.end(trial, Outcome(Kind.INFEASIBLE, "refused before training: about so much", foreseen), after=0.1)
        return trial

    def finish(self, reason: str = "budget spent: 8 trials", complete: bool = True) -> None:
        self.add("study_ended", reason=reason, complete=complete, hopeless=False)

    def _where(self, trial: int, attempt: int) -> dict[str, Any]:
        return {"trial": trial, "attempt": attempt, "job_id": f"muon-{trial:04d}-{attempt}"}

    def _in_force(self, trials: int | None, minutes: float | None, slots: int, held_since: float) -> dict[str, Any]:
        return {
            "golfray_version": "0.1.0",
            "host": "workstation",
            "space": SPACE,
            "preset": "parameter-golf",
            "scale": "laptop",
            "workers": 2,
            "budget": StudyBudget(trials=trials, minutes=minutes).to_dict(),
            "seed": 1,
            "sampler": "tpe",
            "cap_bytes": CAP_BYTES,
            "bytes_code": BYTES_CODE,
            "slots": slots,
            "describe": [
                f"{slots} trial at once: 2 CPUs free, one a worker, 2 workers a trial",
                "each worker computes with 1 CPU thread (cpu)",
            ],
            "data": {
                "name": "kjv",
                "folder": "corpora/kjv",
                "reference": {"uniform": 3.2849, "unigram": 2.7156, "zlib -9": 2.5888, "xz -9e": 2.2294},
                "warning": "This is the King James text, not FineWeb: no score on it is a FineWeb score.",
            },
            "uniform_bpb": 3.2849,
            "limits": {},
            "tracking_uri": None,
            "simulation": None,
            "price": None,
            "holding": {"nodes": 1, "gpus": 0},
            "held_since": held_since,
        }


def write_study(folder: pathlib.Path, script: Script) -> None:
    """The study's folder with its log, in which trials have the preset's real settings, changed as the script says."""
    config = resolve("parameter-golf", "laptop", has_gpu=False).config
    lines = []
    for event in script:
        if event["event"] == "trial_asked" and event["settings"] is not None:
            settings = dataclasses.asdict(config.to_run_settings(BYTES_CODE))
            for path, value in event["params"].items():
                section, name = path.split(".")
                settings[section][name] = value
            settings["data"] = {"folder": "corpora/kjv", "tokenizer": "corpora/kjv/kjv.model"}
            event = {**event, "settings": settings}
        lines.append(encode_record(event) + "\n")
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(lines), encoding="utf-8")


def ran(bpb: float, total: int) -> Outcome:
    """A trial that was scored; infeasible where ``total`` is over the cap."""
    margin = CAP_BYTES - total
    return Outcome(
        Kind.SCORED if margin >= 0 else Kind.INFEASIBLE,
        "fits under the cap" if margin >= 0 else f"bytes/total is {-margin} over the cap of {CAP_BYTES}",
        metrics={
            "train/loss": round(1.62 * bpb, 4),
            "train/steps": 241.0,
            "train/data_passes": 0.4,
            "bpb/prequant": round(bpb - 0.004, 4),
            "bpb/roundtrip": bpb,
            "bytes/code": float(BYTES_CODE),
            "bytes/model": float(total - BYTES_CODE),
            "bytes/total": float(total),
            "bytes/margin": float(margin),
        },
        phases=PHASES,
        artifact="final_model.int8.ptz",
        artifact_sha256="ab" * 32,
        fidelity=FIDELITY,
    )


def failed(kind: Kind, reason: str, error: str | None = None) -> Outcome:
    """A trial that came to no score."""
    return Outcome(kind, reason, phases={"data": 0.2, "compile": 3.0, "train": 2.0}, fidelity=FIDELITY, error=error)


def plain_study() -> Script:
    """Eight trials and two replicates of trial 0, as an ordinary `golfray tune` runs them."""
    script = Script()
    script.start()
    script.run(1.8512, 325_913, "preset")
    script.run(1.8316, 381_530, "preset_8bit", export__bits_mlp=8)
    script.run(1.8878, 325_855, "replicate")
    script.run(1.8222, 325_762, "replicate")
    script.run(1.8385, 317_004, optimizer__matrix_lr=0.0712)
    script.run(1.8844, 372_847, optimizer__matrix_lr=0.0954, export__bits_mlp=8)
    script.run(1.7778, 307_289, optimizer__matrix_lr=0.0512, muon__weight_decay=0.21)
    script.run(1.8991, 325_187, optimizer__matrix_lr=0.0201)
    script.run(1.8402, 311_020, optimizer__matrix_lr=0.0455)
    script.run(1.8120, 315_541, optimizer__matrix_lr=0.0633)
    script.finish()
    return script


def eventful_study() -> Script:
    """What can go wrong in one: retry, refusal, divergence, preemption and resumption, a broken tracker, a drain."""
    script = Script()
    script.start()
    script.run(1.8512, 325_913, "preset")
    crashed = script.ask(optimizer__matrix_lr=0.0333)
    script.submit(crashed)
    script.phase(crashed, "data")
    script.end(crashed, failed(Kind.CRASHED, "rank 1: killed by signal 9", "signal 9"), final=False)
    script.submit(crashed, attempt=2)
    script.end(crashed, ran(1.8301, 318_200), attempt=2)
    refused = script.ask(refused="batch.tokens=100 must be a multiple of batch.slices=8")
    reason = "configuration refused: batch.tokens=100 must be a multiple of batch.slices=8"
    script.end(refused, Outcome(Kind.CRASHED, reason), after=0.0)
    script.add("observer_failed", observer="MlflowObserver", error="TrackingError: MLflow failed at event 30")
    diverged = script.ask(optimizer__matrix_lr=0.1512)
    script.submit(diverged)
    script.end(diverged, failed(Kind.DIVERGED, "training loss is nan at step 12"))
    lost = script.ask(optimizer__matrix_lr=0.0601)
    script.submit(lost)
    script.phase(lost, "train")
    script.point(lost, 60, 3.75, 5.0)
    script.resume(2, ["budget.trials: 8 -> 6"], trials=6)
    script.end(lost, failed(Kind.PREEMPTED, "driver lost", "driver lost"), final=False, after=0.0)
    script.submit(lost, attempt=2)
    script.end(lost, ran(1.7990, 320_000), attempt=2)
    last = script.ask(optimizer__matrix_lr=0.0702)
    script.submit(last)
    script.end(last, failed(Kind.CANCELLED, "interrupted"), final=False)
    script.finish("interrupted", complete=False)
    return script


def wide_study() -> Script:
    """Forty trials that run side by side, after four that have ended."""
    script = Script()
    script.start(trials=60, slots=40)
    for _ in range(4):
        script.run(1.85, 320_000)
    for lane in range(40):
        script.submit(script.ask(), lane=f"lane-{lane}")
    return script


def long_study() -> Script:
    """200 trials of the sampler's, the best of them number 50."""
    script = Script()
    script.start(trials=200)
    for number in range(200):
        script.run(1.9 + abs(number - 50) / 1000, 320_000, "preset" if number == 0 else "sampler")
    script.finish("budget spent: 200 trials")
    return script
