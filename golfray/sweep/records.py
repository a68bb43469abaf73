"""What a study's event log says, as one object: rebuilt from events alone (fields: :mod:`golfray.sweep.record_shape`).

Which of its trials is best: :mod:`golfray.sweep.choosing`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.generations import Generation
from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.record_shape import why_damaged, why_no_beginning
from golfray.sweep.trial_record import CONFIRM, AttemptRecord, LateCheck, TrialRecord, configuration_of, setting_paths


class StudyRecord:
    """A study as its event log tells it.

    ``header`` has the fields of ``study_started`` under their log names, as later ``study_resumed`` left them.
    ``hopeless``: the study gave up because nothing that it could try would have run.
    """

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.trials: list[TrialRecord] = []
        self.generations: list[Generation] = []
        self.end_reason: str | None = None
        self.complete = False
        self.hopeless = False
        self.started: float | None = None
        self.last_event: float | None = None
        # Numbers of trials in the order in which they ended for good; one that was reopened since ends twice.
        self.ends: list[int] = []
        # ``Outcome.error`` of every crash before a first step.
        self.errors_at_start: set[str] = set()
        # What the settings of the last driver's trials have in common, as dotted paths.
        self._setting_paths: set[str] = set()

    @classmethod
    def from_events(cls, events: Iterable[dict[str, Any]]) -> StudyRecord:
        """Replay a log. Raises ``EventLogError`` as :meth:`apply` does, and where it does not begin with a study."""
        record = cls()
        for index, event in enumerate(events):
            record.apply(event)
            if index == 0 and (wrong := why_no_beginning(event)) is not None:
                raise _damaged(event, wrong)
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
    def simulation(self) -> dict[str, Any] | None:
        """What the study was simulated with (:class:`golfray.sweep.sim.simulation.Simulation`); None where it is real.

        Nothing that a simulated study says is evidence of anything.
        """
        return self.header.get("simulation")

    @property
    def stopping(self) -> str:
        """The rule by which trials are stopped; logs of earlier versions do not say, and stopped none."""
        return str(self.header["space"].get("stopping", "off"))

    @property
    def cap_bytes(self) -> int:
        """What code and artifact may weigh together, in bytes."""
        return int(self.header["cap_bytes"])

    def apply(self, event: dict[str, Any]) -> None:
        """Take in the next event. Types that this version does not know are passed over: they add, never redefine.

        Raises ``EventLogError`` on one that is not as it must be, or whose trial or attempt was never announced.
        """
        if (wrong := why_damaged(event)) is not None:
            raise _damaged(event, wrong)
        self.last_event = event["time"]
        if self.generations and event["event"] != "study_resumed":
            self.generations[-1].last_event = event["time"]
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is None:
            return
        try:
            handler(event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(event, f"{type(error).__name__}: {error}") from error

    @property
    def generation(self) -> int:
        """The number of the last driver; 0 before the study started."""
        return self.generations[-1].number if self.generations else 0

    @property
    def changes(self) -> list[str]:
        """How the study was changed on its way, every driver's lines in order."""
        return [line for generation in self.generations for line in generation.changes]

    @property
    def driven_seconds(self) -> float:
        """Seconds during which a driver was alive, each counted from its first to its last record.

        The gaps between drivers are left out: this is what a budget in minutes is spent on.
        """
        return sum(max(0.0, driver.last_event - driver.started) for driver in self.generations)

    @property
    def open_attempts(self) -> list[tuple[TrialRecord, AttemptRecord]]:
        """Attempts of which the log has no end, with their trials: what runs, or ran when a driver was lost."""
        last = [(trial, trial.attempt) for trial in self.trials]
        return [(trial, attempt) for trial, attempt in last if attempt is not None and attempt.outcome is None]

    @property
    def blamed_on_machine(self) -> list[int]:
        """Trials whose crashes made the last driver give up; they prove nothing, so a resumed study runs them again."""
        last = [(trial, trial.attempt) for trial in self.trials if not trial.is_refused and self.hopeless]
        return [
            trial.number
            for trial, attempt in last
            if attempt is not None
            and attempt.generation == self.generation
            and attempt.outcome is not None
            and attempt.outcome.kind is Kind.CRASHED
        ]

    def fidelity_of(self, trial: TrialRecord) -> tuple[str, float] | None:
        """Key under which trials of the study may be ranked together; its preset and scale they all have.

        What the run itself reported, and the share of the study's length; None where it reported nothing.
        """
        outcome = trial.outcome
        return None if outcome is None or not outcome.fidelity else (outcome.fidelity_key, trial.share)

    @property
    def fidelity(self) -> tuple[str, float] | None:
        """The study's one fidelity: that of the first whole run that ended with a score, trial 0 in the normal case."""
        first = next((trial for trial in self.trials if trial.bpb is not None and trial.share == 1.0), None)
        return None if first is None else self.fidelity_of(first)

    def is_comparable(self, trial: TrialRecord) -> bool:
        """Whether the trial ran at the study's fidelity."""
        return self.fidelity_of(trial) == self.fidelity

    @property
    def candidates(self) -> list[TrialRecord]:
        """Trials that may be best: scored, of the study's fidelity, within the cap, and no repetition of another.

        The bytes are compared again here: a wrong label elsewhere must not make an over-cap trial a winner.
        """
        return [
            trial
            for trial in self.trials
            if not trial.repeats
            and trial.outcome is not None
            and trial.outcome.kind is Kind.SCORED
            and trial.bpb is not None
            and trial.bytes_total is not None
            and trial.bytes_total <= self.cap_bytes
            and self.is_comparable(trial)
        ]

    @property
    def confirmed(self) -> int:
        """How many confirmations have ended for good."""
        return sum(trial.role == CONFIRM and not trial.unfinished for trial in self.trials)

    @property
    def counts(self) -> dict[str, int]:
        """How many trials ended as each kind, plus ``running``; kinds that did not occur are left out."""
        ends = ("running" if trial.outcome is None else trial.outcome.kind.value for trial in self.trials)
        return dict(collections.Counter(ends))

    def _on_study_started(self, event: dict[str, Any]) -> None:
        self.header = {key: value for key, value in event.items() if key not in ("seq", "event")}
        self.started = event["time"]
        self._new_generation(event)

    def _on_study_resumed(self, event: dict[str, Any]) -> None:
        own = ("seq", "time", "event", "left_space", "reopened", "torn")
        self.header.update({key: value for key, value in event.items() if key not in own})
        self._new_generation(event)
        self.end_reason, self.complete, self.hopeless = None, False, False
        for trial in self.trials:
            trial.abandoned, trial.left_space = False, None
        for number in event["reopened"]:
            self.trials[number].attempts[-1].final = False
        for entry in event["left_space"]:
            self.trials[entry["trial"]].left_space = entry["reason"]

    def _new_generation(self, event: dict[str, Any]) -> None:
        space = self.header.get("space", {})
        self._setting_paths = {*space.get("knobs", {}), *space.get("implied", {})}
        self.generations.append(Generation.begun(event))

    def _on_lanes_changed(self, event: dict[str, Any]) -> None:
        self.generations[-1].change(event)

    def _on_trial_asked(self, event: dict[str, Any]) -> None:
        if event["trial"] != len(self.trials):
            raise _damaged(event, f"trial {event['trial']} asked after {len(self.trials)} trials")
        self._check_settings(event)
        self.trials.append(
            TrialRecord(
                number=event["trial"],
                role=event["role"],
                params=event["params"],
                settings=event["settings"],
                seed=event["seed"],
                replicate_of=event["replicate_of"],
                kept_from_sampler=None if event["told"] else event.get("told_reason") or "not told",
                refused=event.get("refused"),
                foreseen=event.get("foreseen"),
                too_large=event.get("too_large", False),
                share=event.get("share", 1.0),
                promotes=event.get("promotes"),
                configuration=configuration_of(event["settings"]) if event["settings"] else None,
            )
        )

    def _check_settings(self, event: dict[str, Any]) -> None:
        """One driver gives all its trials the same settings, and every knob is one: what lacks is damage.

        A run would take the default of what lacks, which is another trial.
        """
        if event["settings"] is None:
            return
        paths = setting_paths(event["settings"])
        missing = sorted(self._setting_paths - paths)
        if missing:
            raise _damaged(event, f"settings.{missing[0]}: Field required")
        self._setting_paths = paths

    def _on_attempt_submitted(self, event: dict[str, Any]) -> None:
        attempt = AttemptRecord(event["attempt"], event["job_id"], self.generation, folder=event["folder"])
        attempt.submitted = attempt.last_sign = event["time"]
        self._trial(event).attempts.append(attempt)

    def _on_attempt_started(self, event: dict[str, Any]) -> None:
        attempt = self._attempt(event)
        attempt.started = attempt.last_sign = event["time"]
        attempt.lane = event["lane"]
        attempt.nodes = tuple(NodeProbe.from_dict(node) for node in event.get("nodes", []))

    def _on_phase(self, event: dict[str, Any]) -> None:
        attempt = self._attempt(event)
        attempt.last_sign = event["time"]
        attempt.phases.append((event["phase"], event["time"]))

    def _on_progress(self, event: dict[str, Any]) -> None:
        attempt = self._attempt(event)
        attempt.last_sign = event["time"]
        attempt.curve.append((event["step"], event["metrics"]))

    def _on_late_check(self, event: dict[str, Any]) -> None:
        attempt = self._attempt(event)
        attempt.last_sign = event["time"]
        attempt.late_check = LateCheck(**{field.name: event[field.name] for field in dataclasses.fields(LateCheck)})

    def _on_attempt_ended(self, event: dict[str, Any]) -> None:
        trial = self._trial(event)
        if trial.is_refused and not trial.attempts:
            # A refused trial ends without ever having been submitted.
            trial.attempts.append(AttemptRecord(event["attempt"], event["job_id"], self.generation))
        attempt = self._attempt(event)
        if attempt.outcome is not None:
            return  # a driver that was interrupted while it wrote the end may have written another: the first is true
        attempt.ended, attempt.outcome = event["time"], Outcome.from_dict(event["outcome"])
        end = attempt.outcome
        if end.kind is Kind.CRASHED and end.error is not None and not attempt.made_progress:
            self.errors_at_start.add(end.error)
        # Logs of the first version do not say: nothing was run again then.
        attempt.final = event.get("final", True)
        if attempt.final:
            self.ends.append(trial.number)
        attempt.size_reserve = event.get("size_reserve", 0.0)

    def _on_study_ended(self, event: dict[str, Any]) -> None:
        self.end_reason, self.complete = event["reason"], event["complete"]
        self.hopeless = event.get("hopeless", False)
        for trial in self.trials:
            trial.abandoned = True

    def _trial(self, event: dict[str, Any]) -> TrialRecord:
        if not 0 <= event["trial"] < len(self.trials):
            raise _damaged(event, f"{event['event']} of trial {event['trial']}, which was never asked")
        return self.trials[event["trial"]]

    def _attempt(self, event: dict[str, Any]) -> AttemptRecord:
        for attempt in self._trial(event).attempts:
            if attempt.number == event["attempt"]:
                return attempt
        place = f"trial {event['trial']}, attempt {event['attempt']}"
        raise _damaged(event, f"{event['event']} of {place}, which was never submitted")


def _damaged(event: dict[str, Any], wrong: str) -> EventLogError:
    """Lines count from 1, records from 0."""
    return EventLogError(f"{LOG_NAME}:{event['seq'] + 1}: damaged record ({wrong}); restore the file from a copy")
