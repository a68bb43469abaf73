"""The verb ``golfray data fetch``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.output import Output, with_output
from golfray.data.published_manifest import DEFAULT_REPOSITORY

if TYPE_CHECKING:
    from rich.progress import Progress

    from golfray.data.fetch_file import FetchFile, Listener
    from golfray.data.fetch_plan import FetchPlan


@with_output
def fetch(
    source: str = typer.Argument(
        DEFAULT_REPOSITORY,
        metavar="SOURCE",
        help="owner/name of a dataset repository of the Hub, an https:// address, or a folder laid out as published.",
    ),
    variant: str = typer.Option("sp1024", help="Dataset of the source's manifest: its name, or what follows its '_'."),
    train_shards: int | None = typer.Option(
        None, min=1, help="Train shards to fetch, from the first on; default: 80, or all where there are fewer."
    ),
    to: Path = typer.Option(Path("data"), help="Folder to fetch into; what is there already is verified and kept."),
    tokenizer_only: bool = typer.Option(False, "--tokenizer-only", help="Fetch the tokenizer and no shards."),
    documents: bool = typer.Option(False, "--documents", help="Fetch the documents, too (48 GB as published)."),
    no_header: bool = typer.Option(
        False, "--no-header", help="The shards are bare tokens: write the header in front of each."
    ),
    revision: str | None = typer.Option(None, help="Revision of the repository; default: main."),
    root: str | None = typer.Option(
        None, help="Folder of the source with the manifest; default: datasets for a repository, else the source itself."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be fetched, and write nothing."),
    *,
    output: Output,
) -> None:
    """Fetch published FineWeb shards and their tokenizer, verified; the same command continues where it stopped."""
    from golfray.data.fetch import run_fetch
    from golfray.data.fetch_plan import plan_fetch
    from golfray.data.fetch_request import FetchRequest
    from golfray.data.source_argument import parse_source
    from golfray.data.sources import Patience

    patience = Patience()
    request = FetchRequest(
        source=parse_source(source, revision, root, os.environ),
        to=to,
        variant=variant,
        train_shards=train_shards,
        tokenizer_only=tokenizer_only,
        documents=documents,
        no_header=no_header,
    )
    plan = plan_fetch(request, patience, _Lines(output))
    output.say(*plan.lines())
    (output.result if dry_run else output.detail)(*plan.file_lines())
    plan.check_room()
    if dry_run:
        output.document("data_fetch_plan", plan.to_record())
        return
    with _listener(plan, output) as listener:
        fetched = run_fetch(plan, patience, listener)
    output.result(*fetched.lines())
    output.document("data_fetch", fetched.to_record())


class _Lines:
    """One line a file."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def say(self, line: str) -> None:
        self._output.say(line)

    def at(self, file: FetchFile, position: int) -> None:
        """Not said: a line a file is enough."""

    def done(self, file: FetchFile, was_there: bool) -> None:
        self._output.say(f"{file.target.name}: {file.size:,} bytes, {'there already' if was_there else 'fetched'}")


@contextlib.contextmanager
def _listener(plan: FetchPlan, output: Output) -> Iterator[Listener]:
    """A bar where there is a terminal to draw it on, lines elsewhere."""
    console = output.console()
    if output.quiet or output.as_json or not console.is_terminal:
        yield _Lines(output)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        yield _Bar(progress, plan)


class _Bar:
    """One bar over all bytes, with the file that is at work before it."""

    def __init__(self, progress: Progress, plan: FetchPlan) -> None:
        self._progress, self._ended = progress, 0
        self._task = progress.add_task("", total=sum(file.size for file in plan.files))

    def say(self, line: str) -> None:
        self._progress.console.print(line, markup=False)

    def at(self, file: FetchFile, position: int) -> None:
        self._progress.update(self._task, description=file.target.name, completed=self._ended + position)

    def done(self, file: FetchFile, was_there: bool) -> None:
        self._ended += file.size
        self._progress.update(self._task, description=file.target.name, completed=self._ended)
