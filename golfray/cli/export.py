"""The verb ``export``: the export of a trained checkpoint again, under other settings, without training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.exit_codes import NO_FEASIBLE
from golfray.cli.options import PRESET, SETS
from golfray.cli.output import Output, with_output

if TYPE_CHECKING:
    from golfray.core.settings import RunSettings
    from golfray.ship.foreign_checkpoint import Checkpoint


@with_output
def export(
    checkpoint: Path = typer.Argument(
        ..., help="A trial's folder, its checkpoint.pt, or a state dict from elsewhere: of torch.save or safetensors."
    ),
    out: Path = typer.Option(Path("runs/export"), "--out", help="Folder to write into; of this export or none."),
    sets: list[str] = SETS,
    no_score: bool = typer.Option(False, "--no-score", help="Do not score what was written on the validation text."),
    preset: str = PRESET,
    scale: str = typer.Option(
        "full", help="full, laptop or auto; with the preset only for checkpoints from elsewhere."
    ),
    bytes_code: int | None = typer.Option(
        None, min=0, help="Bytes of the code it ships with; default: those of the packed script of these settings."
    ),
    *,
    output: Output,
) -> None:
    """Export a trained checkpoint under other settings: reload what was written, score it, check it against the cap."""
    from golfray.cli.wiring import absolute
    from golfray.ship.artifact_parts import part_lines
    from golfray.ship.export_stages import ExportFolder

    opened, settings, _ = _open(checkpoint, preset, scale, sets, bytes_code, not no_score, output)
    folder = ExportFolder(absolute(out), opened, settings)
    exported = folder.export(output.say)
    output.say(*part_lines(exported.parts))
    output.result(f"{folder.artifact}: {exported.line()}")
    scored = None if no_score else folder.score()
    if scored is not None:
        output.result(scored.lines()[0])
    output.document(
        "export",
        {
            "folder": str(folder.folder),
            **exported.document(),
            "score": None if scored is None else dataclasses.asdict(scored),
        },
    )
    if exported.margin < 0:
        raise typer.Exit(NO_FEASIBLE)


def _open(
    path: Path,
    preset: str,
    scale: str,
    sets: list[str],
    bytes_code: int | None,
    scores: bool,
    output: Output,
) -> tuple[Checkpoint, RunSettings, Path | None]:
    """The checkpoint, the settings to export it under, and the trial's own settings file, None for one from elsewhere.

    Data of a checkpoint from elsewhere are looked for only where something is computed on them.
    """
    from golfray.cli.wiring import corpus_for, has_gpu
    from golfray.ship import packer
    from golfray.ship.export_source import describe_model, find_checkpoint, resolve_foreign, resolve_trial
    from golfray.ship.foreign_checkpoint import read_checkpoint

    file, trained_with = find_checkpoint(path)
    opened = read_checkpoint(file)
    if trained_with is not None:
        settings = resolve_trial(trained_with, sets).config.to_run_settings(0)
    else:
        resolved = resolve_foreign(opened, preset, scale, sets, has_gpu)
        settings = resolved.config.to_run_settings(0)
        output.say(f"{file}: {describe_model(settings)}; the rest as preset {preset} at scale {resolved.config.scale}")
        if scores or settings.export.gptq:
            corpus = corpus_for(resolved)
            settings = dataclasses.replace(settings, data=corpus.settings())
            output.say(*([corpus.warning] if corpus.warning else []))
    counted = packer.bytes_code(settings) if bytes_code is None else bytes_code
    return opened, dataclasses.replace(settings, bytes_code=counted), trained_with
