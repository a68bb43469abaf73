"""The table of a running study: what runs, what ended last, and a line that says how far the study is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.text import Text

from golfray.report.numbers import KIND_STYLE, bpb_text, bytes_text, first_line, margin_text, seconds_text
from golfray.report.printable import printable
from golfray.report.progress import Position, ended_trials, planned_trials, study_seconds_left
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import TrialRecord

MOST_ROWS = 24


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the table: the fewest characters it takes, and how early it goes where there is no room."""

    name: str
    width: int
    right: bool
    importance: int


COLUMNS = (
    Column("trial", 6, False, 8),
    Column("role", 11, False, 2),
    Column("outcome", 9, False, 7),
    Column("progress", 9, True, 5),
    Column("loss", 6, True, 3),
    Column("BPB", 6, True, 6),
    Column("bytes", 7, True, 1),
    Column("margin", 7, True, 4),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One attempt: a cell a column, or, after the outcome, the reason why the rest is missing."""

    cells: tuple[str, ...]
    reason: str = ""
    style: str = ""


class LiveTable:
    """Lays rows out in a given width. Columns only get wider, so that rows line up with those printed before them."""

    def __init__(self) -> None:
        self._widths = tuple(column.width for column in COLUMNS)

    def lines(self, rows: Sequence[Row], width: int) -> list[Text]:
        """The names of the columns, then the rows, each in at most ``width`` columns of the terminal."""
        for row in rows:
            self._widen(row)
        return [self._laid_out(row, width) for row in (_HEADER, *rows)]

    def line(self, row: Row, width: int) -> Text:
        """One row alone."""
        self._widen(row)
        return self._laid_out(row, width)

    def _widen(self, row: Row) -> None:
        # A reason takes the place of cells that are empty.
        self._widths = tuple(max(have, len(cell)) for have, cell in zip(self._widths, row.cells, strict=True))

    def _laid_out(self, row: Row, width: int) -> Text:
        words = []
        for index in _columns_in(width, self._widths):
            if row.reason and index > _OUTCOME:
                words.append(row.reason)
                break
            cell, wide = row.cells[index], self._widths[index]
            words.append(cell.rjust(wide) if COLUMNS[index].right else cell.ljust(wide))
        return one_line(" ".join(words).rstrip(), row.style, width)


def one_line(text: str, style: str, width: int) -> Text:
    """Printable text that is cut, with an ellipsis, rather than wrapped."""
    line = Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line


def _columns_in(width: int, widths: Sequence[int]) -> list[int]:
    """Indices of the columns to show: the important ones first, as long as they fit."""
    chosen: list[int] = []
    room = width
    for index in sorted(range(len(COLUMNS)), key=lambda index: -COLUMNS[index].importance):
        room -= widths[index] + (1 if chosen else 0)
        if room < 0:
            break
        chosen.append(index)
    return sorted(chosen) or [0]


_HEADER = Row(tuple(column.name for column in COLUMNS), style="bold")
_OUTCOME = 2


def running_row(trial: TrialRecord, position: Position) -> Row:
    """The row of a trial whose last attempt runs and is at ``position``."""
    progress = "" if position.step is None else f"{position.step:,}"
    if position.share is not None:
        progress += f" {100 * position.share:3.0f}%"
    loss = "" if position.loss is None else f"{position.loss:.3f}"
    cells = (_name(trial, len(trial.attempts)), trial.role, position.phase, progress, loss, "", "", "")
    return Row(cells, style="cyan")


def ended_row(trial: TrialRecord, attempt: int, outcome: Outcome) -> Row:
    """The row of an attempt that has ended."""
    metrics, kind = outcome.metrics, outcome.kind
    steps, loss = metrics.get("train/steps"), metrics.get("train/loss")
    word = "refused" if trial.is_refused else "OVER CAP" if kind is Kind.INFEASIBLE else kind.value
    scored = kind in (Kind.SCORED, Kind.INFEASIBLE) and outcome.refused_margin is None
    numbers = (
        "" if steps is None else f"{steps:,.0f}",
        "" if loss is None else f"{loss:.3f}",
        bpb_text(metrics.get("bpb/roundtrip")),
        bytes_text(metrics.get("bytes/total")),
        margin_text(metrics.get("bytes/margin")),
    )
    return Row(
        (_name(trial, attempt), trial.role, word, *(numbers if scored else ("",) * len(numbers))),
        reason="" if scored else first_line(outcome.reason) or "no reason given",
        style=KIND_STYLE[kind],
    )


def best_row(row: Row) -> Row:
    """A row as that of the best feasible trial."""
    return dataclasses.replace(row, cells=(f"{row.cells[0]}*", *row.cells[1:]), style="bold green")


@dataclasses.dataclass(frozen=True)
class Status:
    """How far a study is, as of ``at`` (unix seconds).

    ``spent`` are the seconds in which a driver was at work; ``left`` those that it may still take, None if unknown.
    """

    done: str
    best: str
    at: float
    spent: float
    left: float | None

    @classmethod
    def of(cls, record: StudyRecord, best: TrialRecord | None, at: float) -> Status:
        """The status of a study whose best feasible trial is ``best``."""
        planned, ended = planned_trials(record), ended_trials(record)
        done = f"{ended}/{planned} trials" if planned is not None else f"{ended} trials"
        if best is None or best.bytes_total is None:
            words = "none feasible yet"
        else:
            margin = margin_text(record.cap_bytes - best.bytes_total)
            words = f"best t{best.number:03d} {bpb_text(best.bpb)}, margin {margin}"
        return cls(done, words, at, record.driven_seconds, study_seconds_left(record, at))

    def line(self, now: float, width: int) -> Text:
        """One line of at most ``width`` columns; time goes on where nothing else happened."""
        since = max(now - self.at, 0.0)
        words = [self.done, seconds_text(self.spent + since)]
        if self.left is not None:
            words.append(f"about {rough_seconds_text(max(self.left - since, 0.0))} left")
        return one_line(" | ".join([*words, self.best]), "bold", width)


def rough_seconds_text(seconds: float) -> str:
    """An estimate, with no more digits than it is worth: ``20 s``, ``3 min``, ``1 h 10 min``."""
    if seconds < 55:
        return f"{max(round(seconds / 10), 1) * 10} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{max(minutes, 1)} min"
    minutes = round(minutes / 10) * 10
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def _name(trial: TrialRecord, attempt: int) -> str:
    return f"t{trial.number:03d}" + (f".{attempt}" if attempt > 1 else "")
