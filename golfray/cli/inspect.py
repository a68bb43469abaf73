"""Verbs that look at a study without touching it: ``status``, ``logs`` and ``show trial``."""

from __future__ import annotations

from collections.abc import Callable

import typer

from golfray.cli.options import STUDY_ARGUMENT, TRIAL_ARGUMENT
from golfray.cli.output import Output, with_output

# How often `logs -f` looks for more.
_FOLLOW_S = 0.5
_LOOKS_PER_END = 6


@with_output
def status(study: str | None = STUDY_ARGUMENT, *, output: Output) -> None:
    """Say where a study stands: its trials, the best so far, what runs, and what to type next."""
    import time

    from golfray.report.lookup import load_study
    from golfray.report.status import StudyStatus
    from golfray.report.summary import trials_table

    found = StudyStatus.of(load_study(study), time.time())
    output.result(*found.lines())
    if output.verbose:
        console = output.console()
        console.print(trials_table(found.study.record, console.width))
    output.document("status", found.document())


@with_output
def logs(
    trial: str = TRIAL_ARGUMENT,
    rank: int | None = typer.Option(None, min=0, help="Only what this rank printed; default: all of them."),
    attempt: int | None = typer.Option(None, min=1, help="Which attempt; default: the last one."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on with what is added, until the attempt has ended."),
    *,
    output: Output,
) -> None:
    """Print what the ranks of a trial printed, and the stacks of those that hung.

    On a terminal what it would obey is written out; in a pipe everything is as it was printed.
    """
    from golfray.report.trial_log import find_log

    write = output.result if output.console().is_terminal else output.as_it_is
    if follow:
        _follow(trial, rank, attempt, output, write)
        return
    log = find_log(trial, rank, attempt)
    write(*log.lines())
    output.document("logs", log.document())


def _follow(trial: str, rank: int | None, attempt: int | None, output: Output, write: Callable[..., None]) -> None:
    """Print what is there and what is added; a heading wherever another file goes on."""
    import time

    from golfray.report.trial_log import LogTail

    tail, last, looks = LogTail(trial, rank, attempt), "", 0
    while True:
        # A long study's log takes longer to read than a rank's.
        ended = looks % _LOOKS_PER_END == 0 and tail.ended
        looks += 1
        # What was added up to the end, and half a line that never got its own.
        for name, text in tail.more(whole=not ended):
            if rank is None and name != last:
                write(f"==> {name} <==")
                last = name
            write(*text.removesuffix("\n").split("\n"))
            output.document("logs", {"folder": str(tail.folder), "files": [{"name": name, "text": text}]})
        if ended:
            return
        time.sleep(_FOLLOW_S)


@with_output
def show_trial(trial: str = TRIAL_ARGUMENT, *, output: Output) -> None:
    """Print everything about one trial: settings, attempts, phases, metrics, curve, files."""
    from golfray.report.lookup import load_trial
    from golfray.report.trial_page import trial_document, trial_lines

    found = load_trial(trial)
    output.result(*trial_lines(found))
    output.document("trial", trial_document(found))
