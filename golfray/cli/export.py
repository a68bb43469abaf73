"""The verb ``export``: the export of a trained checkpoint again, under other settings, without training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from golfray.cli.exit_codes import NO_FEASIBLE
from golfray.cli.options import PRESET, SETS
from golfray.cli.output import Output, with_output

if TYPE_CHECKING:
    from golfray.core.settings import RunSettings
    from golfray.ship.export_stages import Exported
    from golfray.ship.foreign_checkpoint import Checkpoint
    from golfray.ship.score_file import ScoredFile


@with_output
def export(
    checkpoint: Path = typer.Argument(
        ..., help="A trial's folder, its checkpoint.pt, or a state dict from elsewhere: of torch.save or safetensors."
    ),
    out: Path = typer.Option(Path("runs/export"), "--out", help="Folder to write into; of this export or none."),
    sets: list[str] = SETS,
    search: bool = typer.Option(
        False, "--search", help="Try hundreds of settings and keep the one that scores best under the cap."
    ),
    tries: int = typer.Option(200, min=1, help="How many settings a search tries."),
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
    from golfray.core.settings import ExportSettings
    from golfray.ship.artifact_parts import part_lines
    from golfray.ship.export_stages import ExportFolder

    if search and no_score:
        raise typer.BadParameter("--search scores settings to choose among them; leave --no-score out")
    opened, settings, trained_with = _open(checkpoint, preset, scale, sets, bytes_code, search, not no_score, output)
    found = None
    if search:
        found = _search(absolute(out), opened, settings, trained_with, tries, output)
        if found["chosen"] is None:
            output.document("export", _document(absolute(out), opened, None, None, found))
            raise typer.Exit(NO_FEASIBLE)
        settings = dataclasses.replace(settings, export=ExportSettings(**found["chosen"]["export"]))
    folder = ExportFolder(absolute(out), opened, settings)
    exported = folder.export(output.detail if search else output.say)
    output.say(*part_lines(exported.parts))
    output.result(f"{folder.artifact}: {exported.line()}")
    scored = None if no_score else folder.score()
    if scored is not None:
        output.result(*scored.score_lines())
    output.document("export", _document(folder.folder, opened, exported, scored, found))
    if exported.margin < 0:
        raise typer.Exit(NO_FEASIBLE)


def _open(
    path: Path,
    preset: str,
    scale: str,
    sets: list[str],
    bytes_code: int | None,
    search: bool,
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
    if settings.export.search is not None:
        raise typer.BadParameter("export.search is a setting of training; this verb has --search and --tries")
    if search:
        settings = dataclasses.replace(settings, export=dataclasses.replace(settings.export, format="flat"))
    counted = packer.bytes_code(settings) if bytes_code is None else bytes_code
    return opened, dataclasses.replace(settings, bytes_code=counted), trained_with


def _search(
    out: Path, checkpoint: Checkpoint, settings: RunSettings, trained_with: Path | None, tries: int, output: Output
) -> dict[str, Any]:
    """Search, print the front and say where its picture is; returns the content of front.json."""
    from golfray.report.export_front import front_lines
    from golfray.report.front_picture import front_picture
    from golfray.ship.export_search_stage import FRONT_NAME, PICTURE_NAME, SearchFolder
    from golfray.ship.export_source import trained_steps
    from golfray.sweep.export_search import SearchPlan

    steps = None if trained_with is None else trained_steps(trained_with)
    folder = SearchFolder(out, checkpoint, settings, SearchPlan(settings=tries), steps)
    found = folder.search(lambda result: front_picture(result, str(checkpoint.path)), output.say)
    output.result(*front_lines(found))
    output.say(f"{out / FRONT_NAME}, {out / PICTURE_NAME}")
    return found


def _document(
    folder: Path,
    checkpoint: Checkpoint,
    exported: Exported | None,
    scored: ScoredFile | None,
    found: dict[str, Any] | None,
) -> dict[str, Any]:
    """For ``--json``; of a search the settings that are not on the front, hundreds of them, are left to front.json."""
    search = None if found is None else {name: found[name] for name in found if name not in ("tried", "export")}
    return {
        "folder": str(folder),
        "checkpoint": str(checkpoint.path.absolute()),
        "checkpoint_sha256": checkpoint.sha256,
        "exported": None if exported is None else exported.document(),
        "score": None if scored is None else dataclasses.asdict(scored),
        "search": search,
    }
