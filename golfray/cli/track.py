"""Verbs about MLflow: ``track`` writes a study's log into a store, ``ui`` shows the study's own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.options import STUDY_ARGUMENT, TRACKING_URI
from golfray.cli.output import Output, with_output
from golfray.config.sizes import count_text

if TYPE_CHECKING:
    from golfray.tracking.store import Store
    from golfray.tracking.store_writer import Counts


@with_output
def track(study: str | None = STUDY_ARGUMENT, tracking_uri: str | None = TRACKING_URI, *, output: Output) -> None:
    """Write a study's event log into an MLflow store: what the store lacks, and nothing twice."""
    from golfray.cli.wiring import study_folder
    from golfray.report.lookup import load_study
    from golfray.tracking.store import Store

    found = load_study(study)
    folder = study_folder(found.folder)
    store = Store.of(folder, found.record.header.get("tracking_uri") if tracking_uri is None else tracking_uri)
    if not store.is_server:
        # An archive that may only be read needs another store, which MLflow would take seconds to find out.
        store.foresee()
    counts = _replay("track", folder, store, output)
    output.result(f"{store.name}: {_words(counts)}")
    if counts.missing:
        output.result(f"{counts.missing} artifacts are no longer in {folder}, so MLflow has none for their trials")
    if counts.left_out:
        output.result(f"{counts.left_out} files are not attached: the server keeps files on a disk of its own machine")
    document = {"runs": counts.runs, **dataclasses.asdict(counts)}
    output.document("track", {"study": found.record.name, "folder": str(folder), "store": store.name, **document})


@with_output
def ui(
    study: str | None = STUDY_ARGUMENT,
    port: int = typer.Option(5000, min=1, max=65_535, help="Port on 127.0.0.1."),
    *,
    output: Output,
) -> None:
    """Open the MLflow page of a study on 127.0.0.1."""
    from golfray.cli.wiring import study_folder
    from golfray.report.lookup import load_study
    from golfray.sweep.events import StudyLocked
    from golfray.tracking.server import check_port, serve
    from golfray.tracking.store import Store

    found = load_study(study)
    folder, name = study_folder(found.folder), found.record.name
    check_port(port)
    store = Store.of(folder)
    try:
        counts = _replay("ui", folder, store, output)
        output.say(f"{store.name}: {_words(counts)}")
    except StudyLocked as locked:
        if not store.exists:
            raise
        output.say(str(locked), "MLflow is shown as it is now")

    def ready(url: str) -> None:
        output.result(url)
        output.document("ui", {"study": name, "folder": str(folder), "store": store.name, "url": url})
        output.say("Ctrl-C ends it")

    output.say(f"starting MLflow for study {name} ...")
    serve(folder, name, port, ready)
    output.say("stopped")


def _replay(verb: str, folder: Path, store: Store, output: Output) -> Counts:
    """Bring the store up to the log's end. Raises ``StudyLocked`` where another process does that itself."""
    from golfray.sweep.events import LOG_NAME
    from golfray.sweep.study_folder import no_driver_in
    from golfray.tracking.replay import replay

    with no_driver_in(folder, verb), _progress(output, folder / LOG_NAME) as progress:
        return replay(folder, store, progress)


@contextlib.contextmanager
def _progress(output: Output, log: Path) -> Iterator[Callable[[int], None]]:
    """On a terminal a line that says how many records are done; it is gone afterwards."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = output.console()
    columns = TextColumn("MLflow: records"), BarColumn(), MofNCompleteColumn()
    off = output.quiet or not console.is_terminal
    with log.open("rb") as lines:
        total = sum(1 for _ in lines)
    with Progress(*columns, console=console, transient=True, refresh_per_second=4, disable=off) as line:
        task = line.add_task("", total=total)
        yield lambda done: line.update(task, completed=done)


def _words(counts: Counts) -> str:
    """What was done to a store, on one line."""
    runs = count_text(counts.runs, "run")
    if not (counts.created or counts.updated or counts.duplicates):
        return f"{runs}, complete already: nothing was written"
    parts = [f"{counts.created} made", f"{counts.updated} brought up to date", f"{counts.unchanged} complete already"]
    written = f"{counts.points:,} points and {counts.files} files written"
    removed = f"; {counts.duplicates} doubles of runs deleted" if counts.duplicates else ""
    return f"{runs}: {', '.join(part for part in parts if not part.startswith('0 '))}; {written}{removed}"
