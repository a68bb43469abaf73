"""What a study's event log says, as objects: rebuilt from events alone, whoever reads them and whenever.

``best_feasible`` is the single chooser: the terminal, the report, MLflow tags and a submission all ask it.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.outcome import Kind, Outcome

# Roles of trials, in the order in which a study asks them.
PRESET = "preset"
PRESET_8BIT = "preset_8bit"
FIRST_POINT = "first_point"
REPLICATE = "replicate"
SAMPLER = "sampler"


@dataclasses.dataclass
class AttemptRecord:
    """One try at running a trial. ``folder`` is relative to the study; ``curve`` holds (step, metrics)."""

    number: int
    job_id: str
    folder: str | None = None
    lane: str | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    outcome: Outcome | None = None
    curve: list[tuple[int, dict[str, float]]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class TrialRecord:
    """One trial: what was asked, and every attempt at it. ``settings`` is None where the configuration was refused."""

    number: int
    role: str
    params: dict[str, Any]
    told: bool
    told_reason: str | None
    settings: dict[str, Any] | None
    seed: int
    replicate_of: int | None
    attempts: list[AttemptRecord] = dataclasses.field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        """How the last attempt ended; None while it runs."""
        return self.attempts[-1].outcome if self.attempts else None

    @property
    def attempt(self) -> AttemptRecord | None:
        """The last attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def curve(self) -> list[tuple[int, dict[str, float]]]:
        """The last attempt's points: (step, metrics)."""
        return self.attempts[-1].curve if self.attempts else []

    @property
    def bpb(self) -> float | None:
        """Round-trip bits per byte, of a trial that ran to its end (feasible or not); None otherwise."""
        outcome = self.outcome
        if outcome is None or outcome.kind not in (Kind.SCORED, Kind.INFEASIBLE):
            return None
        value = outcome.metrics.get("bpb/roundtrip")
        return value if value is not None and math.isfinite(value) else None

    @property
    def bytes_total(self) -> float | None:
        """Bytes of code and artifact together; None where nothing was exported."""
        return None if self.outcome is None else self.outcome.metrics.get("bytes/total")


class StudyRecord:
    """A study as its event log tells it. Attributes of ``study_started`` are in ``header`` under their log names."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.trials: list[TrialRecord] = []
        self.end_reason: str | None = None
        self.complete = False
        self.started: float | None = None
        self.last_event: float | None = None

    @classmethod
    def from_events(cls, events: Iterable[dict[str, Any]]) -> StudyRecord:
        """Replay a log. Raises ``EventLogError`` on an event whose trial or attempt was never announced."""
        record = cls()
        for event in events:
            record.apply(event)
        return record

    @classmethod
    def load(cls, folder: Path) -> StudyRecord:
        """Read ``<folder>/events.jsonl``; raises ``EventLogError`` where there is none or it is damaged."""
        path = folder / LOG_NAME
        if not path.is_file():
            raise EventLogError(
                f"{folder}: no study here ({LOG_NAME} is missing); name a folder that `golfray tune` made"
            )
        return cls.from_events(read_events(path))

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.header["study"])

    @property
    def cap_bytes(self) -> int:
        """What code and artifact may weigh together, in bytes."""
        return int(self.header["cap_bytes"])

    def apply(self, event: dict[str, Any]) -> None:
        """Take in the next event. Types that this version does not know are passed over: they add, never redefine."""
        self.last_event = event["time"]
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def fidelity_of(self, trial: TrialRecord) -> str | None:
        """Key under which trials may be ranked together: preset, scale, and what the run itself reported."""
        if trial.outcome is None or not trial.outcome.fidelity:
            return None
        key = {"preset": self.header["preset"], "scale": self.header["scale"], **trial.outcome.fidelity}
        return json.dumps(key, sort_keys=True)

    @property
    def fidelity(self) -> str | None:
        """The study's one fidelity: that of the first trial that ended with a score, trial 0 in the normal case."""
        for trial in self.trials:
            if trial.bpb is not None:
                return self.fidelity_of(trial)
        return None

    def is_comparable(self, trial: TrialRecord) -> bool:
        """Whether the trial ran at the study's fidelity."""
        return self.fidelity_of(trial) == self.fidelity

    @property
    def candidates(self) -> list[TrialRecord]:
        """Trials that may be best: scored, of the study's fidelity, within the cap, and no replicate.

        The bytes are compared again here: a wrong label elsewhere must not make an over-cap trial a winner.
        """
        return [
            trial
            for trial in self.trials
            if trial.role != REPLICATE
            and trial.outcome is not None
            and trial.outcome.kind is Kind.SCORED
            and trial.bpb is not None
            and trial.bytes_total is not None
            and trial.bytes_total <= self.cap_bytes
            and self.is_comparable(trial)
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended as each kind, plus ``running``; kinds that did not occur are left out."""
        ends = ("running" if trial.outcome is None else trial.outcome.kind.value for trial in self.trials)
        return dict(collections.Counter(ends))

    @property
    def other_fidelity(self) -> list[TrialRecord]:
        """Trials with a score that is not ranked, because they ran at another fidelity."""
        return [trial for trial in self.trials if trial.bpb is not None and not self.is_comparable(trial)]

    def replicates_of(self, number: int) -> list[TrialRecord]:
        """Runs of the same configuration on other seeds."""
        return [trial for trial in self.trials if trial.replicate_of == number]

    def _on_study_started(self, event: dict[str, Any]) -> None:
        self.header = {key: value for key, value in event.items() if key not in ("seq", "event")}
        self.started = event["time"]

    def _on_trial_asked(self, event: dict[str, Any]) -> None:
        if event["trial"] != len(self.trials):
            raise EventLogError(f"seq {event['seq']}: trial {event['trial']} asked after {len(self.trials)} trials")
        self.trials.append(
            TrialRecord(
                number=event["trial"],
                role=event["role"],
                params=event["params"],
                told=event["told"],
                told_reason=event.get("told_reason"),
                settings=event["settings"],
                seed=event["seed"],
                replicate_of=event["replicate_of"],
            )
        )

    def _on_attempt_submitted(self, event: dict[str, Any]) -> None:
        attempt = AttemptRecord(event["attempt"], event["job_id"], folder=event["folder"], submitted=event["time"])
        self._trial(event).attempts.append(attempt)

    def _on_attempt_started(self, event: dict[str, Any]) -> None:
        attempt = self._attempt(event)
        attempt.started, attempt.lane = event["time"], event["lane"]

    def _on_progress(self, event: dict[str, Any]) -> None:
        self._attempt(event).curve.append((event["step"], event["metrics"]))

    def _on_attempt_ended(self, event: dict[str, Any]) -> None:
        trial = self._trial(event)
        if trial.settings is None and not trial.attempts:
            # A refused configuration ends without ever having been submitted.
            trial.attempts.append(AttemptRecord(event["attempt"], event["job_id"]))
        attempt = self._attempt(event)
        attempt.ended, attempt.outcome = event["time"], Outcome.from_dict(event["outcome"])

    def _on_study_ended(self, event: dict[str, Any]) -> None:
        self.end_reason, self.complete = event["reason"], event["complete"]

    def _trial(self, event: dict[str, Any]) -> TrialRecord:
        if not 0 <= event["trial"] < len(self.trials):
            raise EventLogError(
                f"seq {event['seq']}: {event['event']} of trial {event['trial']}, which was never asked"
            )
        return self.trials[event["trial"]]

    def _attempt(self, event: dict[str, Any]) -> AttemptRecord:
        for attempt in self._trial(event).attempts:
            if attempt.number == event["attempt"]:
                return attempt
        raise EventLogError(
            f"seq {event['seq']}: {event['event']} of trial {event['trial']}, attempt {event['attempt']}, "
            "which was never submitted"
        )


def best_feasible(record: StudyRecord) -> TrialRecord | None:
    """The trial with the lowest round-trip bits per byte among ``record.candidates``; the earlier one on a tie.

    A trial stands for itself on its own seed: its replicates never make it, or themselves, best by luck. None where
    nothing fits.
    """
    return min(record.candidates, key=lambda trial: (trial.bpb, trial.number), default=None)
