"""Verbs about one trial: ``train`` and ``score``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from golfray.cli.exit_codes import NO_FEASIBLE
from golfray.cli.options import PRESET, SCALE, SETS
from golfray.cli.output import Output, with_output


@with_output
def train(
    folder: Path = typer.Option(Path("runs/train"), help="Folder to write into; must not exist."),
    preset: str = PRESET,
    scale: str = SCALE,
    sets: list[str] = SETS,
    clock_trace: Path | None = typer.Option(
        None,
        metavar="RUN/clock.json",
        help="Take the clock's readings from another run instead of the clock: the same settings give the same bytes.",
    ),
    *,
    output: Output,
) -> None:
    """Train, export and score one trial under torchrun, without Ray."""
    from golfray.cli.wiring import absolute, check_codecs, corpus_for, passes_lines, resolve_configuration, run_settings
    from golfray.report.train_line import TrainLine, outcome_of, print_result
    from golfray.ship.clock_trace import check_clock_trace
    from golfray.ship.launch import run_under_torchrun

    resolved = resolve_configuration(preset, scale, sets)
    config = resolved.config
    check_codecs(config)
    output.say(
        f"preset {config.preset}, scale {config.scale} ({resolved.origins['scale']}), {config.workers} worker(s)"
    )
    corpus = corpus_for(resolved)
    output.say(*corpus.describe(config.batch.tokens), *passes_lines(config, corpus))
    settings = run_settings(config, corpus)
    if clock_trace is not None:
        from golfray.core.frontier import training_stop

        readings = check_clock_trace(clock_trace, training_stop(settings))
        settings = dataclasses.replace(settings, clock_trace=str(absolute(clock_trace)))
        output.say(f"clock: {readings:,} readings of {clock_trace} instead of the time that passes")
    console = output.console()
    shown = None if output.quiet else console
    with TrainLine(config.stop.steps, config.stop.seconds, shown, every_point=output.verbose) as train_line:
        result = run_under_torchrun(settings, config.workers, absolute(folder), train_line.point, train_line.text)
    outcome = outcome_of(result)
    print_result(outcome, absolute(folder), console, corpus.warning)
    output.document("train", {"folder": str(absolute(folder)), "outcome": outcome.to_dict()})
    if result["kind"] != "scored":
        raise typer.Exit(NO_FEASIBLE)


@with_output
def score(
    artifact: Path = typer.Argument(..., help="The file that a trial exported, of either format."),
    settings: Path | None = typer.Option(None, help="Settings it was trained with; default: settings.json beside it."),
    data: Path | None = typer.Option(None, help="Folder of shards to score on; default: the settings' own."),
    tokenizer: Path | None = typer.Option(
        None, help="SentencePiece model of those shards; default: the settings' own."
    ),
    *,
    output: Output,
) -> None:
    """Reload an artifact, score it on the validation text, and check it against the cap."""
    from golfray.ship.score_file import score_file

    scored = score_file(artifact, settings, data, tokenizer)
    output.result(*scored.lines())
    output.document("score", {"artifact": str(artifact), **dataclasses.asdict(scored), "fits": scored.fits})
    if not scored.fits:
        raise typer.Exit(NO_FEASIBLE)
