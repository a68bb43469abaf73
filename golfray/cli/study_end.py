"""How a study ends on the command line: its summary, its document and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golfray.cli.exit_codes import CRASHES, NO_FEASIBLE, OK
from golfray.cli.output import Output

if TYPE_CHECKING:
    from golfray.sweep.records import StudyRecord


def show_end(record: StudyRecord, folder: Path, output: Output, interrupted: int | None) -> int:
    """Say how a study ended; returns the exit code that follows from it."""
    from golfray.report.documents import study_document
    from golfray.report.summary import print_summary
    from golfray.sweep.choosing import best_feasible

    if interrupted is not None:
        code = interrupted
    elif record.hopeless:
        code = CRASHES
    else:
        code = OK if best_feasible(record) is not None else NO_FEASIBLE
    print_summary(record, folder, output.console(), verbose=output.verbose)
    output.document("study", {**study_document(record, folder), "exit_code": code})
    return code
