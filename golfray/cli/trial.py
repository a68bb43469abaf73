"""Verbs about one trial: ``train`` and ``score``."""

from __future__ import annotations

from pathlib import Path

import typer

from golfray.cli.exit_codes import NO_FEASIBLE
from golfray.cli.options import PRESET, SCALE, SETS


def train(
    folder: Path = typer.Option(Path("runs/train"), help="Folder to write into; must not exist."),
    preset: str = PRESET,
    scale: str = SCALE,
    sets: list[str] = SETS,
) -> None:
    """Train, export and score one trial under torchrun, without Ray."""
    from golfray.cli.wiring import absolute, corpus_for, passes_lines, resolve_configuration, run_settings
    from golfray.report.train_line import TrainLine, print_result
    from golfray.ship.launch import run_under_torchrun

    resolved = resolve_configuration(preset, scale, sets)
    config = resolved.config
    print(f"preset {config.preset}, scale {config.scale} ({resolved.origins['scale']}), {config.workers} worker(s)")
    corpus = corpus_for(config)
    for line in [*corpus.describe(config.batch.tokens), *passes_lines(config, corpus)]:
        print(line)
    with TrainLine(config.stop.steps, config.stop.seconds) as train_line:
        result = run_under_torchrun(
            run_settings(config, corpus), config.workers, absolute(folder), train_line.point, train_line.text
        )
    print_result(result, absolute(folder), corpus.warning)
    if result["kind"] != "scored":
        raise typer.Exit(NO_FEASIBLE)


def score(
    artifact: Path = typer.Argument(..., help="A final_model.int8.ptz."),
    settings: Path | None = typer.Option(None, help="Settings it was trained with; default: settings.json beside it."),
    data: Path | None = typer.Option(None, help="Folder of shards to score on; default: the settings' own."),
    tokenizer: Path | None = typer.Option(
        None, help="SentencePiece model of those shards; default: the settings' own."
    ),
) -> None:
    """Reload an artifact, score it on the validation text, and check it against the cap."""
    from golfray.ship.score_file import score_file

    scored = score_file(artifact, settings, data, tokenizer)
    for line in scored.lines():
        print(line)
    if not scored.fits:
        raise typer.Exit(NO_FEASIBLE)
