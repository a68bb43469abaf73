"""Verbs about what scores prove: ``claim`` and ``compare``. Neither starts anything or writes a file."""

from __future__ import annotations

import typer

from golfray.cli.options import complete_scores
from golfray.cli.output import Output, with_output

_SIDE = "a trial (3, muon/3), a file of scores (.json), or a published row (R40)"


@with_output
def claim(
    first: str = typer.Argument(
        ..., metavar="A", help=f"What is claimed to be better: {_SIDE}.", autocompletion=complete_scores
    ),
    against: str = typer.Option(..., "--vs", metavar="B", help=f"Against {_SIDE}.", autocompletion=complete_scores),
    evaluation: str = typer.Option(
        "plain",
        metavar="plain|sliding",
        help="Which score of a trial: of its validation text in whole sequences, or by sliding windows.",
        autocompletion=lambda: ["plain", "sliding"],
    ),
    power: float = typer.Option(
        0.8, min=0.5, max=0.999, help="Chance of showing a true difference, for the seeds still needed."
    ),
    *,
    output: Output,
) -> None:
    """Say what A's scores prove against B's: Welch's test in BPB and in nats, both rules, every run listed."""
    from golfray.report.claim import claim_document, claim_lines
    from golfray.report.scores_lookup import load_scores
    from golfray.sweep.evidence import weigh
    from golfray.sweep.trial_scores import EVALUATIONS

    if evaluation not in EVALUATIONS:
        raise typer.BadParameter(f"--evaluation must be plain or sliding, got {evaluation}")
    found = weigh(load_scores(first, evaluation), load_scores(against, evaluation), power)
    output.result(*claim_lines(found))
    output.document("claim", claim_document(found))


@with_output
def compare(
    first: str = typer.Argument(..., metavar="A", help=f"One run: {_SIDE}.", autocompletion=complete_scores),
    second: str = typer.Argument(..., metavar="B", help="The other one.", autocompletion=complete_scores),
    *,
    output: Output,
) -> None:
    """Print in which resolved settings two runs differ, their metrics, and where they ran."""
    from golfray.report.comparison import comparison_document, comparison_lines, load_compared

    sides = load_compared(first), load_compared(second)
    output.result(*comparison_lines(*sides))
    output.document("comparison", comparison_document(*sides))
