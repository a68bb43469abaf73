"""The command line: verbs, and how errors become one clear message and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import typer

import golfray
from golfray.cli.data import data_app
from golfray.cli.exit_codes import BUG, ENVIRONMENT, EXIT_CODES_HELP, INTERRUPTED, USAGE
from golfray.cli.package import pack, selftest
from golfray.cli.study import tune, ui
from golfray.cli.trial import score, train

# Set before anything that reads them is imported; a person who wants them otherwise sets them first.
ENVIRONMENT_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}

app = typer.Typer(
    name="golfray",
    help="Turns a search space into the language model that compresses best inside a byte cap.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for verb in (tune, train, score, pack, selftest, ui):
    app.command()(verb)
app.add_typer(data_app, name="data")


def show_version(wanted: bool) -> None:
    """Print the version and leave, where it was asked for."""
    if wanted:
        print(golfray.__version__)
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", callback=show_version),
) -> None:
    """Turns a search space into the language model that compresses best inside a byte cap."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one verb and exit with its documented code. Tracebacks are for our bugs only."""
    for name, value in ENVIRONMENT_VARIABLES.items():
        os.environ.setdefault(name, value)
    # Whoever asks this process to end gets what Ctrl-C gets: ranks are ended first and none is left behind.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as ended:
        # While Ray runs it answers SIGTERM itself, by leaving with the signal's number.
        if ended.code != signal.SIGTERM:
            raise
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place that can turn an error into a message
        code = _explain(error)
    if code == INTERRUPTED:
        print("golfray: interrupted", file=sys.stderr)
    sys.exit(code or 0)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _explain(error: Exception) -> int:
    """Print what went wrong; returns the exit code."""
    code = getattr(error, "exit_code", None)
    show = getattr(error, "show", None)
    if show is not None:
        show()  # the parser's own: usage, a hint at --help, the mistake
    elif code is not None:
        print(f"golfray: {error}", file=sys.stderr)
    elif isinstance(error, OSError) and error.filename is not None:
        print(f"golfray: {error.filename}: {error.strerror}", file=sys.stderr)
        return ENVIRONMENT
    else:
        print(f"golfray: this is a bug of golfray ({type(error).__name__}); please report it", file=sys.stderr)
        sys.excepthook(type(error), error, error.__traceback__)
        return BUG
    return USAGE if code is None else int(code)
