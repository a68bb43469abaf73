"""Who watches a running study on behalf of whoever typed the command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from golfray.cli.output import Output

if TYPE_CHECKING:
    from golfray.sweep.observer import Observer


def study_observers(output: Output, past: Iterable[dict[str, Any]] = ()) -> list[Observer]:
    """With ``--json`` documents, and lines on standard error; without it the live table, or lines.

    With ``-q`` only errors, as lines. ``past`` are the events of a study that goes on, from its log.
    """
    from golfray.report.console import ConsoleObserver
    from golfray.report.documents import DocumentObserver

    person = ConsoleObserver(
        output.console(), lines=output.as_json, quiet=output.quiet, verbose=output.verbose, past=past
    )
    if output.as_json and not output.quiet:
        return [DocumentObserver(output.document, progress=output.verbose), person]
    return [person]
