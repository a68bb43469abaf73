"""Verbs that look at a study without touching it: ``status``, ``logs`` and ``show trial``."""

from __future__ import annotations

import typer

from golfray.cli.options import STUDY_ARGUMENT, TRIAL_ARGUMENT
from golfray.cli.output import Output, with_output


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
    *,
    output: Output,
) -> None:
    """Print what the ranks of a trial printed, and the stacks of those that hung.

    On a terminal what it would obey is written out; in a pipe everything is as it was printed.
    """
    from golfray.report.trial_log import find_log

    log = find_log(trial, rank, attempt)
    (output.result if output.console().is_terminal else output.as_it_is)(*log.lines())
    output.document("logs", log.document())


@with_output
def show_trial(trial: str = TRIAL_ARGUMENT, *, output: Output) -> None:
    """Print everything about one trial: settings, attempts, phases, metrics, curve, files."""
    from golfray.report.lookup import load_trial
    from golfray.report.trial_page import trial_document, trial_lines

    found = load_trial(trial)
    output.result(*trial_lines(found))
    output.document("trial", trial_document(found))
