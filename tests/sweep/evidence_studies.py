"""Studies whose trials have losses, scores and bytes of a text of known size: what tests of claims share."""

from __future__ import annotations

import math
from typing import Any

from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord

CAP_BYTES = 300_000
VAL_TOKENS, VAL_BYTES, SEQ_LEN = 10_001, 25_000, 100
FIDELITY = {"device": "cpu", "dtype": "float32", "compiled": True, "workers": 2, "threads": 1, "stop": "wallclock"}
DATA = {
    "name": "kjv",
    "folder": "corpora/kjv",
    "digest": "d" * 64,
    "val_tokens": VAL_TOKENS,
    "val_bytes": VAL_BYTES,
    "contaminated": False,
}


def loss_of(bpb: float) -> float:
    """Nats per token of a score on that text: bpb * ln 2 * bytes / tokens."""
    return bpb * math.log(2) * VAL_BYTES / (VAL_TOKENS - 1)


class EvidenceStudy:
    """A study's record, made event by event. ``data``: what differs from the corpus of all of them."""

    def __init__(self, **data: Any) -> None:
        self.record = StudyRecord()
        self._write(
            "study_started",
            study="muon",
            preset="parameter-golf",
            scale="laptop",
            workers=2,
            slots=1,
            cap_bytes=CAP_BYTES,
            budget={"trials": 9, "minutes": None},
            space={"fixed": {}, "implied": {}, "knobs": {}},
            data={**DATA, **data},
            describe=[],
            golfray_version="0.1.0",
            host="workstation",
        )

    def run(
        self,
        bpb: float,
        role: str = "sampler",
        *,
        of: int | None = None,
        seed: int = 1337,
        lr: float = 0.04,
        total: int = 250_000,
        kind: Kind | None = None,
        fidelity: dict[str, Any] | None = None,
        **metrics: float,
    ) -> int:
        """One trial from its asking to its end; returns its number. ``of``: the trial that it repeats."""
        number = len(self.record.trials)
        settings = {
            "optimizer": {"matrix_lr": lr},
            "batch": {"seq_len": SEQ_LEN},
            "stop": {"steps": None, "seconds": 15.0},
            "evaluation": {"sliding_stride": 64},
            "runtime": {"seed": seed},
            "data": {"folder": "corpora/kjv", "tokenizer": ""},
            "cap_bytes": CAP_BYTES,
            "bytes_code": 40_000,
        }
        where = {"trial": number, "attempt": 1, "job_id": f"muon-{number:04d}-1"}
        self._write(
            "trial_asked",
            trial=number,
            role=role,
            params={},
            told=of is None,
            settings=settings,
            seed=seed,
            replicate_of=of,
        )
        self._write("attempt_submitted", **where, folder=f"trials/{number:04d}/attempt-1")
        self._write("attempt_started", **where, lane="lane-0")
        found = {"bpb/roundtrip": bpb, "val_loss/roundtrip": loss_of(bpb), "bytes/total": float(total), **metrics}
        ended = kind or (Kind.SCORED if total <= CAP_BYTES else Kind.INFEASIBLE)
        scored = ended in (Kind.SCORED, Kind.INFEASIBLE)
        outcome = Outcome(ended, "", metrics=found if scored else {}, fidelity=fidelity or FIDELITY)
        self._write("attempt_ended", **where, outcome=outcome.to_dict(), final=True)
        return number

    def _write(self, event: str, **fields: Any) -> None:
        self.record.apply({"seq": 0, "time": 1_800_000_000.0, "event": event, **fields})


def searched(**data: Any) -> EvidenceStudy:
    """Trial 0 on three seeds, three trials of the sampler's of which number 4 is best, all on one seed."""
    study = EvidenceStudy(**data)
    study.run(2.000, "preset")
    study.run(2.010, "replicate", of=0, seed=1338)
    study.run(1.990, "replicate", of=0, seed=1339)
    study.run(1.980, lr=0.05)
    study.run(1.950, lr=0.06)
    study.run(1.970, lr=0.07)
    return study
