"""``golfray pull``: a study that another machine runs, and all that belongs to it, brought home."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.exit_codes import ENVIRONMENT
from golfray.cli.output import Output, with_output
from golfray.config.sizes import count_text, size_text

if TYPE_CHECKING:
    from golfray.cluster.far_folder import FarFolder
    from golfray.cluster.pull import Pull, Pulled

_LOOK_S = 30.0
# Looks in a row without an answer, after which a machine is taken for gone: ten minutes.
_LOOKS = 20
# Lines about what is missing; the document has them all.
_MOST_LINES = 10


@with_output
def pull(
    source: str = typer.Argument(
        ...,
        metavar="SOURCE",
        help="The study's folder as [USER@]HOST:PATH, by ssh; or a cluster file that `ray up` was called with.",
    ),
    study: str | None = typer.Argument(
        None,
        metavar="STUDY",
        help="With a cluster file: the study's name below ~/golfray/studies of the head; default: the one written last "
        "there.",
    ),
    study_dir: Path | None = typer.Option(None, help="Folder for it here; default: studies/<name of its folder>."),
    follow: bool = typer.Option(
        False, "--follow", "-f", help="Look every 30 s whether its log has grown, and pull again until it has ended."
    ),
    *,
    output: Output,
) -> None:
    """Bring a study home from another machine, while it runs there or after; again and again, only what is new.

    Its log comes first, then its files, the small ones before the checkpoints. Nothing that is newer here is written
    over. Ends with 4 where an artifact that the log names has not come.
    """
    from golfray.cli.wiring import study_folder
    from golfray.cluster.pull import Pull
    from golfray.config.errors import ConfigError
    from golfray.tracking.store import ARTIFACTS_NAME, STORE_NAME

    far = _far(source, study, output)
    if not far.name:
        raise ConfigError("names no study's folder; write [USER@]HOST:golfray/studies/NAME", file=source)
    folder = study_dir or Path("studies") / far.name
    study_folder(folder)  # refuses what no verb could name afterwards
    work = Pull(far, folder, (f"/{STORE_NAME}*", f"/{ARTIFACTS_NAME}/"))
    output.say(f"{far}: looking")
    lacking = False
    try:
        for pulled in _pulls(work, follow, output):
            _say(pulled, work, output)
            lacking = bool(pulled.lacking)
    except KeyboardInterrupt:
        if folder.exists():
            output.say(f"{folder}: what has come stays, and the same command goes on from it")
        raise
    if lacking:
        raise typer.Exit(ENVIRONMENT)


def _far(source: str, study: str | None, output: Output) -> FarFolder:
    """The folder that is meant, on whatever machine."""
    from golfray.cluster.cluster_head import head_of
    from golfray.cluster.far_folder import check_programs, far_folder
    from golfray.cluster.on_head import CODE
    from golfray.config.errors import ConfigError
    from golfray.sweep.events import LOG_NAME

    far = far_folder(source)
    if far is not None:
        if study is not None:
            raise typer.BadParameter(f"{source} names the study's folder already; leave {study} out")
        check_programs()
        return far
    if not Path(source).exists():
        raise ConfigError("is neither [USER@]HOST:PATH nor a cluster file that is here", file=source)
    check_programs("ssh")
    output.say(f"{source}: asking Ray for the head")
    home = head_of(Path(source), CODE)
    if study is not None:
        return home.below(study if "/" in study else f"studies/{study}")
    studies = home.below("studies")
    names = studies.folders_with(LOG_NAME)
    if not names:
        raise ConfigError("no study there", file=str(studies))
    return studies.below(names[0])


def _pulls(work: Pull, follow: bool, output: Output) -> Iterator[Pulled]:
    """One pull, or with ``follow`` one whenever there is something new, to the study's end."""
    from golfray.cluster.far_folder import CannotPull
    from golfray.sweep.events import StudyLocked

    unanswered, first = 0, True
    while True:
        try:
            with _progress(output) as tell:
                pulled = work.once(tell)
        except (CannotPull, StudyLocked) as error:
            unanswered += 1
            # A connection may fail for a while, or `golfray track` be at work here; the first time it is news.
            if first or unanswered == _LOOKS:
                raise
            output.say(f"{error}; trying again in {_LOOK_S:g} s")
        else:
            unanswered, first = 0, False
            if pulled is not None:
                yield pulled
                if not follow or pulled.record.end_reason is not None:
                    return
        time.sleep(_LOOK_S)


def _say(pulled: Pulled, work: Pull, output: Output) -> None:
    """What has come, whether it is all, and what to do next."""
    from golfray.report.lookup import FoundStudy
    from golfray.report.progress import counts_words
    from golfray.report.status import StudyStatus

    record, folder = pulled.record, work.folder
    trials = ", ".join(filter(None, [count_text(len(record.trials), "trial"), counts_words(record)]))
    came = (
        f"{count_text(pulled.new_records, 'new record')}, {count_text(pulled.files, 'file')} ({size_text(pulled.size)})"
    )
    output.result(f"{folder}: {trials}; came: {came}")
    for finding in pulled.lacking[:_MOST_LINES]:
        output.result(f"MISS {finding.line()}")
    if len(pulled.lacking) > _MOST_LINES:
        output.result(f"MISS {count_text(len(pulled.lacking) - _MOST_LINES, 'more artifact')}")
    whole = pulled.artifacts - len(pulled.lacking)
    output.result(f"artifacts: {whole} of {pulled.artifacts} are here as the log has them")
    ended = record.end_reason is not None
    named = shlex.quote(str(folder))
    command = StudyStatus.of(FoundStudy(folder, record), time.time()).next_command() if ended else None
    if ended:
        output.result(f"it has ended there: {record.end_reason}")
    else:
        ago = max(time.time() - (record.last_event or 0.0), 0.0)
        output.result(
            f"it has not ended there (last record {ago:.0f} s ago): go on with it here only if nothing runs it"
        )
    output.say(f"next: golfray status {named}; golfray track {named} (makes MLflow's store of it again)")
    if command is not None:
        output.say(f"next: {command}")
    output.document(
        "pull",
        {
            "study": record.name,
            "source": str(work.source),
            "folder": str(folder),
            "records": pulled.records,
            "new_records": pulled.new_records,
            "trials": len(record.trials),
            "files": pulled.files,
            "bytes": pulled.size,
            "artifacts": pulled.artifacts,
            "findings": [dataclasses.asdict(finding) for finding in pulled.lacking],
            "ended": ended,
            "complete": record.complete,
            "end_reason": record.end_reason,
            "next_command": command,
        },
    )


@contextlib.contextmanager
def _progress(output: Output) -> Iterator[Callable[[int], None]]:
    """On a terminal a line that says how much has come; it is gone afterwards."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console = output.console()
    off = output.quiet or not console.is_terminal
    came = [0, 0]
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True, disable=off
    ) as line:
        task = line.add_task("pulling")

        def tell(size: int) -> None:
            came[0] += 1
            came[1] += size
            line.update(task, description=f"pulling: {count_text(came[0], 'file')}, {size_text(came[1])}")

        yield tell
