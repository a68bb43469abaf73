"""``golfray show knobs``: what a study has taught about its knobs."""

from __future__ import annotations

from golfray.cli.options import STUDY_ARGUMENT
from golfray.cli.output import Output, with_output


@with_output
def show_knobs(study: str | None = STUDY_ARGUMENT, *, output: Output) -> None:
    """Print effect, importance and rates of failure of every knob of a study, each with its uncertainty."""
    from golfray.report.knobs import knobs_document, print_knobs
    from golfray.report.lookup import load_study
    from golfray.sweep.importance import LEAST_TRIALS, knob_importances
    from golfray.sweep.knowledge import known_of
    from golfray.sweep.space_record import space_of

    found = load_study(study)
    knobs = space_of(found.record, str(found.folder)).knobs
    known = known_of(found.record, knobs)
    enough = len(known.scores) >= LEAST_TRIALS
    importances = knob_importances(knobs, known.points, known.scores) if enough else None
    print_knobs(found.record, known, importances, output.console())
    output.document("knobs", knobs_document(found.record, found.folder, known, importances))
