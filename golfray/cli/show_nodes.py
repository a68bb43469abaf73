"""``golfray show nodes``: the machines of a study."""

from __future__ import annotations

from golfray.cli.options import STUDY_ARGUMENT
from golfray.cli.output import Output, with_output


@with_output
def show_nodes(study: str | None = STUDY_ARGUMENT, *, output: Output) -> None:
    """Print what each node of a study measured of itself, which are slow, and ms a step of the same work on each."""
    from golfray.report.lookup import load_study
    from golfray.report.nodes import node_lines, nodes_document

    found = load_study(study)
    output.result(*node_lines(found.record))
    output.document("nodes", nodes_document(found.record, found.folder))
