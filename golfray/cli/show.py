"""``golfray show``: what a configuration or a space file amounts to, and the schemas that editors read."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from golfray.cli.exit_codes import EXIT_CODES_HELP
from golfray.cli.options import SCALE, SETS
from golfray.cli.output import Output, with_output

show_app = typer.Typer(
    no_args_is_help=True, help="Show a configuration, the schema of a file, a trial, or a study's knobs or nodes."
)


# What a JSON Schema can be asked of.
SCHEMAS = ("space", "config")


@show_app.command("config", epilog=EXIT_CODES_HELP)
@with_output
def show_config(
    space_file: Path | None = typer.Argument(
        None, metavar="SPACE.yaml", help="A search space: its trial 0 and its knobs are shown."
    ),
    preset: str | None = typer.Option(
        None, help="Named full configuration to start from; default: parameter-golf, or the one that the space names."
    ),
    scale: str = SCALE,
    sets: list[str] = SETS,
    *,
    output: Output,
) -> None:
    """Print every setting, its value, and where that value came from; -v adds what each setting is."""
    from golfray.cli.wiring import has_gpu, resolve_configuration
    from golfray.config.errors import ConfigError
    from golfray.config.resolve import Layer
    from golfray.report.configuration import configuration_document, configuration_lines
    from golfray.sweep.space import load_space

    if space_file is None:
        space, resolved = None, resolve_configuration(preset or "parameter-golf", scale, sets)
    elif preset is not None:
        raise ConfigError(f"{space_file} names its preset itself; leave --preset out", file="--preset")
    else:
        space = load_space(space_file, has_gpu=has_gpu, layers=[Layer.from_sets(sets)], scale=scale)
        resolved = space.base
    output.result(*configuration_lines(resolved, space, described=output.verbose))
    output.document("config", configuration_document(resolved, space))


@show_app.command("schema", epilog=EXIT_CODES_HELP)
@with_output
def show_schema(
    what: str = typer.Argument(
        "space",
        metavar="space|config",
        help="Of space files, or of the whole configuration.",
        autocompletion=lambda: list(SCHEMAS),
    ),
    file: Path | None = typer.Option(None, "--output", "-o", help="File to write; default: standard output."),
    *,
    output: Output,
) -> None:
    """Print the JSON Schema (draft 2020-12) of space files or of the configuration, for editors."""
    from golfray.config.errors import did_you_mean
    from golfray.config.json_schema import config_schema
    from golfray.sweep.space_schema import space_schema

    if what not in SCHEMAS:
        raise typer.BadParameter(f"no schema of {what}; {did_you_mean(what, SCHEMAS)}")
    schema = space_schema() if what == "space" else config_schema()
    text = json.dumps(schema, indent=2)
    if file is None and not output.as_json:
        output.result(*text.split("\n"))
    elif file is not None:
        file.write_text(text + "\n", encoding="utf-8")
        output.say(
            f"{file}: written; a YAML file beside it begins with: # yaml-language-server: $schema={file.name}",
            "(editors read that path as relative to the YAML file: from another folder write the way from there)",
        )
    output.document("schema", {"of": what, "file": None if file is None else str(file), "json_schema": schema})
