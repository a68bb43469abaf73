"""A study on the terminal as it runs: one line an event, and on a real terminal one live line below them."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from golfray.report.numbers import KIND_STYLE, bpb_text, fidelity_text, outcome_text, seconds_text
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord, TrialRecord, best_feasible

REFRESH_PER_SECOND = 4


class ConsoleObserver:
    """Prints a study's events. Off a terminal the lines are the same, without colour and without the live line."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._record = StudyRecord()
        self._latest: dict[int, tuple[int, dict[str, float]]] = {}
        self._live: Live | None = None
        self._fidelity_said = False

    def on_event(self, event: dict[str, Any]) -> None:
        """Print what a person wants to know of one event-log record."""
        kind = event["event"]
        if kind == "progress":
            self._latest[event["trial"]] = event["step"], event["metrics"]
            return
        self._record.apply(event)
        if kind == "study_started":
            self._print_start()
        elif kind == "attempt_started":
            self._say(event, f"started on {event['lane']}")
        elif kind == "attempt_ended":
            self._latest.pop(event["trial"], None)
            self._print_end(event)
        elif kind == "observer_failed":
            self._print(Text(f"{event['observer']} stopped: {event['error']}", style="red"))
        elif kind == "study_ended":
            self._print(Text(f"study ended: {event['reason']}"))

    def close(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print_start(self) -> None:
        header = self._record.header
        budget = [f"{header['budget']['trials']} trials"] if header["budget"].get("trials") else []
        budget += [f"{header['budget']['minutes']:g} minutes"] if header["budget"].get("minutes") else []
        self._print(
            Text(
                f"study {self._record.name}: {header['preset']} at scale {header['scale']}, "
                f"{header['workers']} workers a trial, {' or '.join(budget) or 'no limit'}, "
                f"cap {self._record.cap_bytes:,} bytes"
            )
        )
        for line in header["describe"]:
            self._print(Text(line))
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._status,
                console=self._console,
                refresh_per_second=REFRESH_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _print_end(self, event: dict[str, Any]) -> None:
        trial, outcome = self._trial(event), Outcome.from_dict(event["outcome"])
        if outcome.fidelity and not self._fidelity_said:
            self._fidelity_said = True
            self._print(Text(f"trials run as: {fidelity_text(outcome.fidelity)}"))
        attempt = next(attempt for attempt in trial.attempts if attempt.number == event["attempt"])
        begun = attempt.started or attempt.submitted
        took = f", {seconds_text(event['time'] - begun)}" if begun is not None else ""
        best = best_feasible(self._record)
        passes = outcome.metrics.get("train/data_passes", 0.0)
        again_text = f", read its training text {passes:.1f} times" if passes > 1 else ""
        new = ", best so far" if best is not None and best.number == trial.number else ""
        self._say(event, f"{outcome_text(outcome)}{took}{again_text}{new}", KIND_STYLE[outcome.kind])

    def _say(self, event: dict[str, Any], what: str, style: str = "") -> None:
        trial = self._trial(event)
        again = f", attempt {len(trial.attempts)}" if len(trial.attempts) > 1 else ""
        self._print(Text.assemble(f"t{trial.number:03d} {trial.role}{again}: ", (what, style)))

    def _print(self, text: Text) -> None:
        # One event is one line, whatever the width: a log file is searched line by line.
        self._console.print(text, soft_wrap=True)

    def _trial(self, event: dict[str, Any]) -> TrialRecord:
        return self._record.trials[event["trial"]]

    def _status(self) -> Text:
        record = self._record
        running = [trial for trial in record.trials if trial.attempts and trial.outcome is None]
        done = len(record.trials) - len(running)
        total = record.header["budget"].get("trials")
        elapsed = time.time() - (record.started or time.time())
        words = [f"{done}/{total} trials" if total else f"{done} trials", seconds_text(elapsed)]
        best = best_feasible(record)
        words.append(f"best {bpb_text(best.bpb)} (t{best.number:03d})" if best is not None else "none feasible yet")
        for trial in running:
            step, metrics = self._latest.get(trial.number, (None, {}))
            loss = metrics.get("train/loss")
            at = "" if step is None else f" step {step}" + ("" if loss is None else f" loss {loss:.3f}")
            words.append(f"t{trial.number:03d}{at}")
        return Text(" | ".join(words), no_wrap=True, overflow="ellipsis")
