"""Logs of studies over two choices and a range, each trial's score and end as a test wants it."""

from __future__ import annotations

from typing import Any

from golfray.sweep.knobs import Knob
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.space_record import knob_of
from tests.report.scripted import CAP_BYTES, FIDELITY, Script

_BLANK = {"complement": False, "or_zero": False, "at_most": None, "when": {}}
CHOICES = {
    "muon.ns_dtype": {"type": "choice", "choices": ["bfloat16", "float32"], "preset": "bfloat16", **_BLANK},
    "muon.ns_steps": {"type": "int", "low": 4, "high": 5, "log": False, "step": 1, "preset": 5, **_BLANK},
}
RATE = {
    "optimizer.matrix_lr": {
        **_BLANK,
        "type": "float",
        "low": 0.01,
        "high": 0.64,
        "log": True,
        "step": None,
        "preset": 0.04,
    }
}
TOKENS_A_STEP = 2048


def knobs_of(entries: dict[str, Any]) -> tuple[Knob, ...]:
    """The knobs as the log has them."""
    return tuple(knob_of(path, entry) for path, entry in entries.items())


class KnobStudy:
    """Trials one after the other: ``run`` scores one, ``end`` ends one without a score."""

    def __init__(self, entries: dict[str, Any], implied: dict[str, Any] | None = None) -> None:
        self._entries = entries
        self._script = Script()
        self._script.start()
        space = {
            "name": "muon",
            "source": "muon.yaml",
            "fixed": {},
            "implied": implied or {},
            "knobs": entries,
            "first_points": [],
            "seed": 1,
            "sampler": "tpe",
            "replicates": 1,
        }
        self._script.events[0]["space"] = space

    def run(self, bpb: float, steps: float = 100.0, role: str = "sampler", over: bool = False, **params: Any) -> int:
        """A scored trial."""
        total = CAP_BYTES + (1000 if over else -1000)
        metrics = {"bpb/roundtrip": bpb, "bytes/total": float(total), "train/steps": steps}
        outcome = Outcome(Kind.INFEASIBLE if over else Kind.SCORED, "as asked", metrics, fidelity=FIDELITY)
        return self._trial(outcome, role, params)

    def end(self, kind: Kind, **params: Any) -> int:
        """A trial that came to no score."""
        return self._trial(Outcome(kind, "as asked", fidelity=FIDELITY), "sampler", params)

    @property
    def record(self) -> StudyRecord:
        """The study so far."""
        return StudyRecord.from_events(self._script)

    @property
    def script(self) -> Script:
        """Its events."""
        return self._script

    def _trial(self, outcome: Outcome, role: str, params: dict[str, Any]) -> int:
        trial = self._script.ask(role)
        asked = self._script.events[-1]
        asked["params"] = {path.replace("__", "."): value for path, value in params.items()}
        settings = {"batch": {"tokens": TOKENS_A_STEP}, "export": {"scale_floor": 0.0}, "muon": {}, "optimizer": {}}
        presets = {path: entry["preset"] for path, entry in self._entries.items()}
        for path, value in {**presets, **asked["params"]}.items():
            section, name = path.split(".")
            settings[section][name] = value
        asked["settings"] = {**asked["settings"], **settings}
        self._script.submit(trial)
        self._script.end(trial, outcome)
        return trial
