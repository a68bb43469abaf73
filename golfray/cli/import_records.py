"""``golfray import-records``: public records as foreign observations, which may warm-start a study's sampler."""

from __future__ import annotations

from pathlib import Path

import typer

from golfray.cli.output import Output, with_output


@with_output
def import_records(
    clone: Path | None = typer.Argument(
        None,
        metavar="CLONE",
        help="Folder of a local clone of the parameter-golf repository; default: the numbers that golfray ships.",
    ),
    file: Path = typer.Option(Path("observations.json"), "--output", "-o", help="File to write."),
    *,
    output: Output,
) -> None:
    """Write public records into a file of foreign observations, for warm_start of a space file."""
    from golfray.cli.wiring import absolute
    from golfray.config.errors import ConfigError
    from golfray.report.observations import observation_document, observation_lines
    from golfray.sweep.observation import published_observations, write_observations
    from golfray.sweep.records_clone import read_clone

    skipped: tuple[str, ...] = ()
    if clone is None:
        observations = published_observations()
    else:
        found = read_clone(absolute(clone))
        observations, skipped = found.observations, found.skipped
        if not observations.records:
            output.result(*(f"skipped: {line}" for line in skipped))
            raise ConfigError(f"has no record that can be used; {len(skipped)} were skipped", file=str(clone))
    write_observations(file, observations)
    output.result(*observation_lines(observations, skipped, file))
    output.document("import_records", observation_document(observations, skipped, file))
