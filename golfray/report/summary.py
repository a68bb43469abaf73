"""The end of a study: its trials in a table, the best feasible one, what that is worth, and what to type next."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from golfray.config.errors import ConfigError
from golfray.config.positions import parse_value
from golfray.config.sizes import count_text
from golfray.report.cost import cost_line
from golfray.report.lane_time import lane_time_line, recompiled_words
from golfray.report.numbers import (
    KIND_STYLE,
    bpb_text,
    bytes_text,
    first_line,
    knob_paths,
    knob_value,
    margin_text,
    seconds_text,
    value_text,
)
from golfray.report.printable import line
from golfray.report.progress import counts_words, too_large_words
from golfray.report.ranking import outcome_words, ranked_trials, ranks
from golfray.sweep.choosing import Choice, best_feasible
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.regret import stopped_trials
from golfray.sweep.statistics import Claim, claim
from golfray.sweep.stopping import LATE_CHECK
from golfray.sweep.trial_record import TrialRecord

# Refused points that are named; of more the first ones and the last.
_MOST_NAMES = 6


def print_summary(record: StudyRecord, folder: Path, console: Console, verbose: bool = False) -> None:
    """Print the end of a study whose directory is ``folder``.

    On a terminal its parts are set apart, and a second table has the knobs of the best trials; elsewhere a log is kept
    short, and the knobs of the best trial are those of the command that trains it again.
    """
    apart = [Text()] if console.is_terminal or verbose else []
    _print(console, *apart, trials_table(record, console.width))
    _print(console, line("* best feasible by posterior mean; ranked: scored, under the cap, no repetition"), *apart)
    if (console.is_terminal or verbose) and knob_paths(record):
        _print(console, knobs_table(record, console.width), *apart)
    said = claim(record)
    parts = [
        _failures(record, wide=console.is_terminal or verbose, verbose=verbose),
        [*_best_lines(record, said), *_claim_lines(said), *_reference_lines(record)],
    ]
    for part in parts:
        _print(console, *part, *apart)
    cost = cost_line(record)
    if cost is not None:
        _print(console, line(cost), *apart)
    for command in _next_commands(record, folder, said):
        # In one piece on a terminal too, where it is copied from.
        console.print(command, soft_wrap=True)


def _print(console: Console, *things: Text | Table) -> None:
    for thing in things:
        console.print(thing, soft_wrap=isinstance(thing, Text) and not console.is_terminal)


def trials_table(record: StudyRecord, width: int) -> Table:
    """All trials that ran, as ranked, in less than 80 columns; in fewer than that without what matters least.

    Only the best feasible trial has a star, and only trials that may be best have a rank. Points that were refused for
    their size, which may be many, have a line of their own below.
    """
    best, places = best_feasible(record), ranks(record)
    rows, styles = [], []
    for trial in ranked_trials(record):
        if trial.too_large:
            continue
        is_best = best is not None and trial.number == best.number
        kind = trial.outcome.kind if trial.outcome is not None else None
        # What a short run weighs says nothing.
        weight = trial.bytes_total if trial.share == 1.0 else None
        margin = record.cap_bytes - weight if weight is not None else None
        rows.append(
            (
                "*" if is_best else str(places.get(trial.number, "")),
                f"t{trial.number:03d}",
                trial.role,
                outcome_words(record, trial),
                bpb_text(trial.bpb),
                bytes_text(weight),
                margin_text(margin),
            )
        )
        styles.append("bold green" if is_best else KIND_STYLE[kind] if kind not in (None, Kind.SCORED) else "")
    names = ("", "trial", "role", "outcome", "BPB", "bytes", "margin")
    wide = [max(len(cells[index]) for cells in (names, *rows)) for index in range(len(names))]
    shown = list(range(len(names)))
    for name in ("role", "bytes", "margin", "outcome"):
        if sum(wide[index] + 1 for index in shown) - 1 > width:
            shown.remove(names.index(name))
    table = _plain_table()
    for index in shown:
        numbers = names[index] in ("", "BPB", "bytes", "margin")
        table.add_column(line(names[index]), no_wrap=True, justify="right" if numbers else "left")
    for cells, style in zip(rows, styles, strict=True):
        table.add_row(*(line(cells[index]) for index in shown), style=style)
    return table


def knobs_table(record: StudyRecord, width: int) -> Table:
    """A row a knob, a column a trial, as many trials from the top of the ranking as ``width`` columns hold."""
    best = best_feasible(record)
    paths = knob_paths(record)
    # A repetition has the knobs of the trial that it repeats.
    trials = [trial for trial in ranked_trials(record) if not trial.repeats]
    cells = {trial.number: [value_text(knob_value(trial, path)) for path in paths] for trial in trials}
    room = width - max((len(path) for path in paths), default=0) - 1
    table = _plain_table()
    table.add_column("knob", no_wrap=True)
    columns = []
    for trial in trials:
        is_best = best is not None and trial.number == best.number
        name = f"t{trial.number:03d}" + ("*" if is_best else "")
        room -= max(len(text) for text in (name, *cells[trial.number])) + 1
        if room < 0:
            break
        table.add_column(name, no_wrap=True, justify="right", style="bold green" if is_best else "")
        columns.append(cells[trial.number])
    for path, *values in zip(paths, *columns, strict=True):
        table.add_row(line(path), *map(line, values))
    return table


def _plain_table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)


def _best_lines(record: StudyRecord, said: Claim) -> list[Text]:
    best = said.best
    if best is None or best.bytes_total is None:
        return [line(f"best feasible: none; no trial scored within the cap of {record.cap_bytes:,} bytes", "bold red")]
    margin = record.cap_bytes - best.bytes_total
    score = f"best feasible: t{best.number:03d} ({best.role}), {bpb_text(best.bpb)} bits per byte"
    size = f"{bytes_text(best.bytes_total)} bytes, {bytes_text(margin)} under the cap of {record.cap_bytes:,}"
    return [line(f"{score}, {size}", "bold green"), *(line(f"  {words}") for words in chosen_words(said.choice))]


def chosen_words(choice: Choice) -> list[str]:
    """How the best trial was chosen, and the lowest score, where its own score alone does not say it."""
    best, lowest = choice.best, choice.lowest
    if best is None or lowest is None or best.sd is None or (lowest is best.trial and best.seeds == 1):
        return []
    words = f"lowest posterior mean: {bpb_text(best.posterior)} +-{best.sd:.4f}"
    if best.seeds > 1:
        words += f", from a mean of {bpb_text(best.mean)} over {best.seeds} seeds"
    if lowest is best.trial:
        return [words]
    other = next(standing for standing in choice.standings if standing.trial is lowest)
    seeds = "" if other.seeds == 1 else f" over {other.seeds} seeds"
    score = f"lowest score: t{lowest.number:03d}, {bpb_text(lowest.bpb)}"
    return [words, f"{score}; its posterior mean{seeds} is {bpb_text(other.posterior)}"]


def _claim_lines(said: Claim) -> list[Text]:
    if said.best is None:
        return []
    lines, size = [], ""
    if said.best.number == 0:
        lines.append(line("against trial 0: trial 0 itself is best; no trial that fits beat the preset"))
    elif said.difference is None:
        lines.append(line("against trial 0: unknown, trial 0 has no score"))
    else:
        times = said.in_noise_units
        size = "" if times is None else f"; the difference is {abs(times):.1f} times that"
        side = "better" if said.difference < 0 else "worse"
        seeds = 1 if said.choice.best is None else said.choice.best.seeds
        mean = "" if seeds == 1 else f"its mean over {seeds} seeds is "
        runs = "trial 0" if said.noise.runs == 1 else f"the mean of trial 0 on {said.noise.runs} seeds"
        lines.append(line(f"against trial 0: {mean}{abs(said.difference):.4f} BPB {side} than {runs}"))
        if said.steps_differ:
            steps = f"  steps: {said.best_steps:,.0f} in t{said.best.number:03d}, {said.reference_steps:,.0f} in {runs}"
            lines.append(line(f"{steps}; a run that stops by the clock trains fewer on a busy machine", "yellow"))
    lines.append(line(f"  seed noise of this fidelity: {said.noise}{size}"))
    if said.expected_luck is None:
        lines.append(line(f"luck of the best of {said.candidates}: unknown, as the noise is"))
    else:
        lines.append(
            line(f"luck of the best of {said.candidates}: {said.expected_luck:.4f} BPB if all were equally good")
        )
    return lines


def _reference_lines(record: StudyRecord) -> list[Text]:
    data = record.header["data"]
    points = {name: value for name, value in (data.get("reference") or {}).items() if value is not None}
    lines = []
    if points:
        told = ", ".join(f"{name} {value:.4f}" for name, value in points.items())
        lines.append(line(f"the same text in bits per byte: {told}"))
    if data.get("warning"):
        lines.append(line(str(data["warning"]), style="yellow"))
    return lines


def _failures(record: StudyRecord, *, wide: bool, verbose: bool) -> list[Text]:
    lines = []
    for trial in record.trials:
        if trial.outcome is not None and trial.outcome.kind not in (Kind.SCORED, Kind.INFEASIBLE):
            reason = first_line(trial.outcome.reason) or "no reason given"
            lines.append(line(f"t{trial.number:03d} {trial.outcome.kind.value}: {reason}"))
    elapsed, ran = record.driven_seconds, [trial for trial in record.trials if not trial.too_large]
    counted = counts_words(record) or "none"
    lines.append(
        line(
            f"{count_text(len(ran), 'trial')} in {seconds_text(elapsed)}: {counted}; {record.end_reason or 'not ended'}"
        )
    )
    lines += _too_large(record)
    lane_time, recompiled = lane_time_line(record, all_parts=verbose), recompiled_words(record)
    if wide and lane_time is not None:
        lines.append(line(lane_time))
    if recompiled is not None:
        lines.append(line(recompiled, "yellow"))
    if record.stopping == LATE_CHECK:
        lines.append(line(stopped_trials(record).words()))
    return lines


def _too_large(record: StudyRecord) -> list[Text]:
    names = [f"t{trial.number:03d}" for trial in record.trials if trial.too_large]
    if not names:
        return []
    some = names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 1], "...", names[-1]]
    return [line(f"{too_large_words(len(names))}: {', '.join(some)}")]


def _next_commands(record: StudyRecord, folder: Path, said: Claim) -> list[Text]:
    commands = [] if record.complete else [(resume_command(record, folder), "go on")]
    commands.append((_mlflow_page(record, folder), "compare the trials in MLflow"))
    artifact = _artifact(said.best, folder) if said.best is not None else None
    if said.best is not None and artifact is not None:
        commands.append((f"golfray score {shlex.quote(str(artifact))}", "score the best artifact again"))
        space = record.header["space"]
        implied = {**space["fixed"], **({} if said.best.number == 0 else space["implied"])}
        values = {**implied, **{path: knob_value(said.best, path) for path in knob_paths(record)}}
        sets = " ".join(f"--set {path}={_typed(value)}" for path, value in values.items())
        header = record.header
        runs = shlex.quote(f"runs/{record.name}-t{said.best.number:03d}")
        again = f"golfray train --folder {runs}"
        commands.append(
            (f"{again} --preset {header['preset']} --scale {header['scale']} {sets}".rstrip(), "train it again")
        )
    return [line(f"{what}: {command}") for command, what in commands]


def resume_command(record: StudyRecord, folder: Path) -> str:
    """What to type to go on with a study that did not come to its end: tracked where it was, simulated if it was."""
    uri = record.header.get("tracking_uri")
    tracked = "" if uri is None else f" --tracking-uri {shlex.quote(uri)}"
    simulated = "" if record.simulation is None else " --executor sim"
    return f"golfray tune --resume {shlex.quote(str(folder))}{tracked}{simulated}"


def _mlflow_page(record: StudyRecord, folder: Path) -> str:
    """Where the trials can be compared: a server's address, or the command that shows a file."""
    uri = record.header.get("tracking_uri")
    if uri is None:
        return f"golfray ui {shlex.quote(str(folder))}"
    return str(uri) if uri.startswith("http") else f"mlflow ui --backend-store-uri {shlex.quote(uri)}"


def _artifact(trial: TrialRecord, folder: Path) -> Path | None:
    attempt = trial.attempt
    if attempt is None or attempt.folder is None or attempt.outcome is None or attempt.outcome.artifact is None:
        return None
    return folder / attempt.folder / attempt.outcome.artifact


def _typed(value: Any) -> str:
    """A value as ``--set`` reads it back exactly: plain where it can be, else in quotes of its own."""
    plain = isinstance(value, str) and _reads_as_itself(value)
    return shlex.quote(value if plain else json.dumps(value))


def _reads_as_itself(text: str) -> bool:
    try:
        return bool(parse_value(text, "--set", "") == text)
    except ConfigError:
        return False
