"""A study's events as lines for a person, one line an event."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from golfray.config.sizes import count_text
from golfray.report.numbers import (
    KIND_STYLE,
    fidelity_text,
    knob_paths,
    knob_value,
    outcome_text,
    seconds_text,
    value_text,
)
from golfray.report.printable import line
from golfray.report.progress import ended_trials, planned_trials
from golfray.sweep.budget import StudyBudget
from golfray.sweep.choosing import best_feasible
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord


class EventLines:
    """Turns each event that ``record`` has just taken in into lines.

    What happens some hundred times a trial (phases, points of a curve) and what is the ordinary way of things (every
    start but the first) is left to ``verbose``: a study's log stays readable from top to bottom. ``apart``: where
    there is room, what the machine amounts to has a line for each part.
    """

    def __init__(self, record: StudyRecord, verbose: bool = False, apart: bool = False) -> None:
        self._record = record
        self._verbose = verbose
        self._apart = apart
        self._started = False
        self._fidelity_said = False

    def of(self, event: dict[str, Any]) -> list[Text]:
        """The lines of one event; none for types that are of no interest, or that this version does not know."""
        match event["event"]:
            case "study_started":
                return [line(self._header("study {name}: ")), *self._described()]
            case "study_resumed":
                return self._resumed(event)
            case "trial_asked" if self._verbose:
                return [self._of_trial(event, self._knobs(event))]
            case "attempt_submitted" if event["attempt"] > 1:
                return [self._of_trial(event, f"runs again ({self._ended_before(event)})")]
            case "attempt_started" if self._verbose or not self._started:
                self._started = True
                return [self._of_trial(event, f"started on {event['lane']}")]
            case "phase" if self._verbose:
                return [self._of_trial(event, event["phase"])]
            case "progress" if self._verbose:
                loss = event["metrics"].get("train/loss")
                return [self._of_trial(event, f"step {event['step']}" + ("" if loss is None else f", loss {loss:.4f}"))]
            case "late_check":
                goes_on = "; it runs on, being audited" if event["audited"] else "; it is asked to stop"
                return [self._of_trial(event, event["reason"] + goes_on)]
            case "attempt_ended":
                return self._end(event)
            case "lanes_changed":
                held = event["holding"]
                nodes = f"{count_text(held['nodes'], 'node')} held, {count_text(event['slots'], 'trial')} at once"
                return [line(f"{'; '.join([*event['news'], nodes])}", style="yellow")]
            case "observer_failed":
                return [line(f"{event['observer']} stopped: {event['error']}", style="red")]
            case "study_ended" if not event["complete"]:
                return [line(f"study ended early: {event['reason']}")]
        return []

    def fidelity(self, event: dict[str, Any]) -> list[Text]:
        """What scores can be compared on, said once, with the first attempt that reports it."""
        if event["event"] != "attempt_ended" or self._fidelity_said:
            return []
        fidelity = event["outcome"].get("fidelity")
        self._fidelity_said = bool(fidelity)
        return [line(f"trials run as: {fidelity_text(fidelity)}")] if fidelity else []

    def _header(self, beginning: str) -> str:
        record = self._record
        header, limits = record.header, StudyBudget.from_dict(record.header["budget"]).words()
        return beginning.format(name=record.name) + (
            f"{header['preset']} at scale {header['scale']}, {count_text(header['workers'], 'worker')} a trial, "
            f"{' or '.join(limits) or 'no limit'}, cap {record.cap_bytes:,} bytes"
        )

    def _described(self) -> list[Text]:
        described = self._record.header["describe"]
        return [line(words) for words in (described if self._apart else ["; ".join(described)]) if words]

    def _resumed(self, event: dict[str, Any]) -> list[Text]:
        planned = planned_trials(self._record)
        done = f"{ended_trials(self._record)}" + ("" if planned is None else f" of {planned}")
        beginning = f"study {{name}} resumed (driver {event['generation']}), {done} trials ended: "
        return [
            line(self._header(beginning)),
            *self._described(),
            *(line(f"changed: {change}", style="yellow") for change in event.get("changes") or []),
        ]

    def _end(self, event: dict[str, Any]) -> list[Text]:
        trial, outcome = self._record.trials[event["trial"]], Outcome.from_dict(event["outcome"])
        attempt = next(attempt for attempt in trial.attempts if attempt.number == event["attempt"])
        begun = attempt.started or attempt.submitted
        # When a driver was lost, the time until another one says so is no attempt's.
        known = begun is not None and outcome.kind is not Kind.PREEMPTED
        took = f", {seconds_text(event['time'] - (begun or 0.0))}" if known else ""
        passes = outcome.metrics.get("train/data_passes", 0.0)
        again = f", read its training text {passes:.1f} times" if passes > 1 else ""
        recompiled = outcome.metrics.get("train/recompiles", 0.0) > 0
        again += ", compiled again inside the clock" if recompiled else ""
        best = best_feasible(self._record)
        new = ", best so far" if best is not None and best.number == trial.number else ""
        short = "" if trial.share == 1.0 else f"a run of {100 * trial.share:.0f}% of the length: "
        what = f"{short}{outcome_text(outcome)}{took}{again}{new}"
        return [*self.fidelity(event), self._of_trial(event, what, KIND_STYLE[outcome.kind])]

    def _ended_before(self, event: dict[str, Any]) -> str:
        attempts = self._record.trials[event["trial"]].attempts
        before = next((attempt for attempt in attempts if attempt.number == event["attempt"] - 1), None)
        if before is None or before.outcome is None:
            return "the attempt before did not end"
        return f"attempt {before.number}: {before.outcome.kind.value}"

    def _knobs(self, event: dict[str, Any]) -> str:
        trial = self._record.trials[event["trial"]]
        values = [f"{path}={value_text(knob_value(trial, path))}" for path in knob_paths(self._record)]
        return ", ".join(values) or "no knobs"

    def _of_trial(self, event: dict[str, Any], what: str, style: str = "") -> Text:
        trial = self._record.trials[event["trial"]]
        again = f", attempt {event['attempt']}" if event.get("attempt", 1) > 1 else ""
        return line(f"t{trial.number:03d} {trial.role}{again}: ").append_text(line(what, style))
