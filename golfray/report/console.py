"""A study as it runs, for a person: on a terminal one live table, elsewhere one line an event."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from golfray.report.event_lines import EventLines
from golfray.report.live_display import LiveDisplay
from golfray.report.live_table import MOST_ROWS, LiveTable, Row, Status, best_row, ended_row, one_line, running_row
from golfray.report.progress import position_of
from golfray.sweep.choosing import best_feasible
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord

# Lines of the terminal that are not the table's rows: its header, the status line, and the line the cursor ends on.
_OTHER_LINES = 3


# A trial's number and an attempt's.
_Key = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _View:
    """What is drawn. It is replaced as a whole, since it is another thread that draws."""

    ended: tuple[tuple[_Key, Row], ...] = ()
    running: tuple[Row, ...] = ()
    best: _Key | None = None
    status: Status | None = None


class ConsoleObserver:
    """Prints a study's events on ``console``.

    On a terminal, one table is drawn again at most four times a second: what runs, what ended last, and how far the
    study is. Rows that no longer fit leave it upwards, as printed lines, so that nothing is lost from sight; at the end
    it stays as it is. Elsewhere, or with ``lines``, every event is one line; with ``quiet`` only a broken observer is
    one.

    ``past`` are the events of a study that goes on, from its log: they are taken in and not printed. ``clock`` gives
    unix seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        lines: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        past: Iterable[dict[str, Any]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._console = console
        self._clock = clock
        self._record = StudyRecord.from_events(past)
        self._words = EventLines(self._record, verbose, apart=console.is_terminal)
        self._wants_table = console.is_terminal and not console.is_dumb_terminal and not (lines or quiet)
        self._quiet = quiet
        self._table = LiveTable()
        self._view = _View()
        self._display: LiveDisplay | None = None

    def on_event(self, event: dict[str, Any]) -> None:
        """Take in one event-log record and show what a person wants to know of it."""
        self._record.apply(event)
        if self._quiet:
            self._print(*(self._words.of(event) if event["event"] == "observer_failed" else []))
        elif not self._wants_table:
            self._print(*self._words.of(event))
        else:
            self._show(event)

    def close(self) -> None:
        """Draw the table a last time, without the status line, and leave it there."""
        if self._display is not None:
            display, self._display = self._display, None
            display.stop()

    def _show(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("study_started", "study_resumed"):
            self._print(*self._words.of(event))
            self._update(event)
            self._open_table()
        elif kind in ("observer_failed", "study_ended"):
            self._print(*self._words.of(event))
        else:
            self._print(*self._words.fidelity(event))
            self._update(event)

    def _open_table(self) -> None:
        if self._display is None:
            self._display = LiveDisplay(self._console, self._drawn)
            self._display.start()

    def _update(self, event: dict[str, Any]) -> None:
        record, ended = self._record, self._view.ended
        if event["event"] == "attempt_ended":
            trial = record.trials[event["trial"]]
            row = ended_row(trial, event["attempt"], Outcome.from_dict(event["outcome"]))
            ended += (((trial.number, event["attempt"]), row),)
        positions = ((trial, position_of(trial)) for trial in record.trials)
        running = tuple(running_row(trial, position) for trial, position in positions if position is not None)
        best, status = self._view.best, self._view.status
        if event["event"] not in ("phase", "progress"):
            # Of all trials, so not for every point of every curve.
            chosen = best_feasible(record)
            best = None if chosen is None else (chosen.number, len(chosen.attempts))
            status = Status.of(record, chosen, event["time"])
        leaving, staying = _split(ended, self._rows() - self._shown(len(running), len(ended)), best)
        self._view = _View(staying, running, best, status)
        self._print(*(self._table.line(row, self._console.width) for _, row in leaving))

    def _drawn(self) -> Group:
        view, width = self._view, self._console.width
        shown = self._shown(len(view.running), len(view.ended))
        _, kept = _split(view.ended, self._rows() - shown, view.best)
        rows = [best_row(row) if key == view.best else row for key, row in kept]
        lines = self._table.lines([*rows, *view.running[:shown]], width)
        if 0 < shown < len(view.running):
            lines[-1] = one_line(f"and {len(view.running) - shown + 1} more that run", "cyan", width)
        if self._display is not None and view.status is not None:
            lines.append(view.status.line(self._clock(), width))
        return Group(*lines)

    def _shown(self, running: int, ended: int) -> int:
        """How many running trials have a row: all of them, but no more than half the table where that is full."""
        return min(running, max(self._rows() // 2, self._rows() - ended))

    def _rows(self) -> int:
        return max(1, min(MOST_ROWS, self._console.height - _OTHER_LINES))

    def _print(self, *lines: Text) -> None:
        if self._display is not None:
            self._display.print(*lines)
            return
        for line in lines:
            # In a file one event is one line, whatever its length: files are searched line by line.
            self._console.print(line, soft_wrap=not self._console.is_terminal)


def _split(
    ended: tuple[tuple[_Key, Row], ...], room: int, best: _Key | None
) -> tuple[tuple[tuple[_Key, Row], ...], tuple[tuple[_Key, Row], ...]]:
    """Rows that leave the table and rows that stay: the last ones, and the best feasible trial however old it is."""
    cut = max(len(ended) - max(room, 0), 0)
    leaving, staying = ended[:cut], ended[cut:]
    if staying and (old := [item for item in leaving if item[0] == best]):
        leaving = (*(item for item in leaving if item[0] != best), staying[0])
        staying = (*old, *staying[1:])
    return leaving, staying
