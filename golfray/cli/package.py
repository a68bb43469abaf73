"""Verbs about what ships and what this machine computes: ``pack`` and ``selftest``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from golfray.cli.exit_codes import ENVIRONMENT
from golfray.cli.options import PRESET, SCALE, SETS
from golfray.cli.output import Output, with_output


@with_output
def pack(
    file: Path = typer.Argument(Path("train_gpt.py"), help="File to write."),
    preset: str = PRESET,
    scale: str = SCALE,
    sets: list[str] = SETS,
    settings: Path | None = typer.Option(
        None, metavar="TRIAL/settings.json", help="Ship what a trial ran with, an export that was searched included."
    ),
    *,
    output: Output,
) -> None:
    """Write the one-file training script of a recipe, its settings inside."""
    from golfray.cli.wiring import resolve_configuration, run_settings
    from golfray.ship.packer import pack as pack_settings
    from golfray.ship.packer import write_packed
    from golfray.ship.score_file import read_settings

    if settings is None:
        packed = run_settings(resolve_configuration(preset, scale, sets).config, None)
    elif sets:
        raise typer.BadParameter("--settings has every setting already; leave --set out")
    else:
        packed = read_settings(settings)
    script = pack_settings(packed)
    write_packed(file, script)
    output.result(f"{file}: {script.bytes_code:,} bytes of code, of a cap of {packed.cap_bytes:,}")
    if not packed.data.folder:
        output.say(
            "data.folder is empty: set it (--set data.folder=...), or give the script a settings file of its own"
        )
    output.document(
        "pack",
        {
            "file": str(file),
            "bytes_code": script.bytes_code,
            "cap_bytes": packed.cap_bytes,
            "data_folder": packed.data.folder or None,
        },
    )


@with_output
def selftest(
    vectors: Path | None = typer.Option(None, help="A golfray-vectors/1 file; the shipped baseline where not given."),
    data: Path | None = typer.Option(None, help="Folder the file's dataset and tokenizer paths are relative to."),
    *,
    output: Output,
) -> None:
    """Check this machine's numerics against reference numbers; one line a case."""
    from golfray.selftest.runner import format_result, run_vectors

    results = []
    for result in run_vectors(vectors, data):
        # With -q only what is wrong is worth a line.
        (output.say if result.ok else output.result)(format_result(result))
        results.append(result)
    missed = sum(not result.ok for result in results)
    output.result(f"{len(results)} cases, {missed} missed")
    output.document("selftest", {"cases": [dataclasses.asdict(result) for result in results], "missed": missed})
    if missed:
        raise typer.Exit(ENVIRONMENT)
