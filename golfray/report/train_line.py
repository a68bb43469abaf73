"""``golfray train`` on the terminal: a live line while one trial runs, and its result in a few lines."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.text import Text

from golfray.report.export_front import search_text
from golfray.report.live_display import LiveDisplay
from golfray.report.numbers import (
    KIND_STYLE,
    bpb_text,
    first_line,
    margin_text,
    outcome_text,
    seconds_text,
    sliding_text,
)
from golfray.report.printable import line, printable
from golfray.sweep.outcome import Outcome

SECONDS_A_LINE = 5.0


class TrainLine:
    """Shows the points of one running trial.

    On a terminal it is one line that is drawn again; elsewhere a line is printed for the first point, then at most
    one every five seconds, or with ``every_point`` each of them. Use it as a context manager. ``steps`` and ``seconds``
    are where the run stops (None: no such limit). Nothing is printed where ``console`` is None.
    """

    def __init__(
        self, steps: int | None, seconds: float | None, console: Console | None, every_point: bool = False
    ) -> None:
        self._steps, self._seconds = steps, seconds
        self._console = console
        self._pause = 0.0 if every_point else SECONDS_A_LINE
        self._latest: Mapping[str, float] = {}
        self._printed = 0.0
        self._display: LiveDisplay | None = None

    def __enter__(self) -> TrainLine:
        if self._console is not None and self._console.is_terminal and not self._console.is_dumb_terminal:
            self._display = LiveDisplay(self._console, self._text)
            self._display.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None

    def point(self, point: Mapping[str, float]) -> None:
        """Take one progress point of ``golfray.core.trial.run_trial``."""
        self._latest = point
        if self._display is not None or self._console is None:
            return
        if not self._printed or time.monotonic() - self._printed >= self._pause:
            self._printed = time.monotonic()
            self._console.print(self._text(), soft_wrap=True)

    def text(self, words: str) -> None:
        """Print a line that the trial said, above the live one."""
        said = Text(printable(words, keep="\t"))
        if self._display is not None:
            self._display.print(said, soft_wrap=True)
        elif self._console is not None:
            self._console.print(said, soft_wrap=True)

    def _text(self) -> Text:
        point = self._latest
        if not point:
            return Text("starting")
        step = f"step {int(point['step']):,}" + (f"/{self._steps:,}" if self._steps else "")
        words = [
            step,
            f"loss {point['train/loss']:.4f}",
            f"lr x{point['train/lr_multiplier']:.3f}",
            f"{point['train/tokens_per_s']:,.0f} tokens/s",
            seconds_text(point["elapsed_s"]) + (f" of {seconds_text(self._seconds)}" if self._seconds else ""),
        ]
        return Text("  ".join(words), no_wrap=True, overflow="ellipsis")


def outcome_of(result: Mapping[str, Any]) -> Outcome:
    """The outcome in a result.json, in which numbers that JSON has no form for are text ("nan")."""
    metrics = {name: float(value) for name, value in result["metrics"].items()}
    return Outcome.from_dict({**result, "metrics": metrics})


def print_result(outcome: Outcome, folder: Path, console: Console, warning: str | None = None) -> None:
    """Print how a trial ended that wrote into ``folder``; ``warning`` is the corpus's, on what its scores are not."""
    metrics = outcome.metrics
    lines = [line(outcome_text(outcome), style=KIND_STYLE[outcome.kind])]
    if "bpb/roundtrip" in metrics:
        lines.append(
            line(
                f"bits per byte: {bpb_text(metrics['bpb/roundtrip'])} after the round trip, "
                f"{bpb_text(metrics.get('bpb/prequant'))} before it"
            )
        )
    if "bpb/live" in metrics:
        lines.append(Text(f"averaged weights are exported; the live ones had {bpb_text(metrics['bpb/live'])}"))
    if outcome.search is not None:
        lines.append(line(search_text(outcome.search)))
    if "sliding/scored_share" in metrics:
        lines.append(Text(sliding_text(metrics)))
    if "bytes/total" in metrics:
        code, model, margin = (metrics.get(f"bytes/{name}") for name in ("code", "model", "margin"))
        cap = int(metrics["bytes/total"] + (margin or 0))
        lines.append(
            line(f"bytes: {int(code or 0):,} code + {int(model or 0):,} model, {margin_text(margin)} to cap {cap:,}")
        )
    if "train/steps" in metrics:
        lines.append(
            line(
                f"training: {int(metrics['train/steps']):,} steps, {int(metrics.get('train/tokens', 0)):,} tokens, "
                f"{metrics.get('train/step_ms', 0):.1f} ms a step, {metrics.get('train/tokens_per_s', 0):,.0f} tokens/s"
            )
        )
    if outcome.phases:
        phases = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in outcome.phases.items())
        lines.append(line(f"phases: {phases}"))
    if outcome.artifact:
        lines.append(line(f"artifact: {folder / outcome.artifact}"))
        lines.append(line(f"score it again: golfray score {shlex.quote(str(folder / outcome.artifact))}"))
    elif outcome.reason:
        lines.append(line(f"reason: {first_line(outcome.reason, 1000)}"))
    if warning:
        lines.append(line(warning, style="yellow"))
    for each in lines:
        console.print(each, soft_wrap=True)
