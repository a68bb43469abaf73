"""The command line: verbs, and how errors become one clear message and an exit code."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Any

import typer
import typer.core

import golfray
from golfray.cli.confirm import confirm
from golfray.cli.data import data_app
from golfray.cli.data_fetch import fetch
from golfray.cli.doctor import doctor
from golfray.cli.evidence import claim, compare
from golfray.cli.exit_codes import (
    BUG,
    ENVIRONMENT,
    EXIT_CODES_HELP,
    HUNG_UP,
    INTERRUPTED,
    MEANINGS,
    OUTPUT_CLOSED,
    TERMINATED,
    USAGE,
)
from golfray.cli.export import export
from golfray.cli.import_records import import_records
from golfray.cli.inspect import logs, show_trial, status
from golfray.cli.interrupts import Unwinding, exit_code_of, is_gone, let_go_of_terminal
from golfray.cli.output import JSON_OPTION, VERBOSE_OPTIONS, Output
from golfray.cli.package import pack, selftest
from golfray.cli.pull import pull
from golfray.cli.running import list_studies, stop
from golfray.cli.show import show_app
from golfray.cli.show_knobs import show_knobs
from golfray.cli.show_nodes import show_nodes
from golfray.cli.size import size
from golfray.cli.study import tune
from golfray.cli.track import track, ui
from golfray.cli.trial import score, train
from golfray.cluster.errors import lacking_memory

# Set before anything that reads them is imported; a person who wants them otherwise sets them first.
ENVIRONMENT_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


class PastTheParser(Exception):
    """Carries ``error`` out of a verb: the parser would make an exit of its own of an interrupt or a broken pipe."""

    def __init__(self, error: KeyboardInterrupt | BrokenPipeError) -> None:
        super().__init__(str(error))
        self.error = error


class NoCurrentFolder(Exception):
    """The current folder was deleted: no relative path means anything, and some libraries cannot even be loaded."""

    exit_code = ENVIRONMENT


class Verbs(typer.core.TyperGroup):
    """The verbs; what ends one is told to :func:`main` as it is."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that was typed."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise PastTheParser(error) from error


app = typer.Typer(
    name="golfray",
    cls=Verbs,
    help="Turns a search space into the language model that compresses best inside a byte cap.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for verb in (
    tune,
    status,
    logs,
    stop,
    pull,
    size,
    confirm,
    claim,
    compare,
    train,
    score,
    export,
    pack,
    selftest,
    doctor,
    track,
    ui,
):
    app.command()(verb)
app.command("ls")(list_studies)
app.command("import-records")(import_records)
data_app.command()(fetch)
app.add_typer(data_app, name="data")
show_app.command("trial")(show_trial)
show_app.command("knobs")(show_knobs)
show_app.command("nodes")(show_nodes)
app.add_typer(show_app, name="show")
for group in (app, data_app, show_app):
    for command in group.registered_commands:
        command.epilog = EXIT_CODES_HELP


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
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name, value in ENVIRONMENT_VARIABLES.items():
        os.environ.setdefault(name, value)
    _replace_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal does not have costs a question mark, not the result.
            stream.reconfigure(errors="replace")
    # Whoever asks this process to end gets what Ctrl-C gets: ranks are ended first and none is left behind.
    Unwinding().install()
    sys.exit(_run(words))


def _replace_closed() -> None:
    """Where the shell closed an output, the next file that is opened would take its number, and the output with it."""
    streams: tuple[Any, Any] = (sys.stdout, sys.stderr)
    for number, stream in enumerate(streams, 1):
        if stream is None:
            # A pipe that nobody reads: what is written is refused as any output that was closed.
            reader, writer = os.pipe()
            os.dup2(writer, number)
            for end in {reader, writer} - {number}:
                os.close(end)
            setattr(sys, ("stdout", "stderr")[number - 1], open(number, "w", closefd=False, encoding="utf-8"))  # noqa: SIM115


def _run(words: list[str]) -> int:
    """Run a verb; returns its exit code, after everything that is to be said has been said."""
    # Also where the verb never began, because what was typed for it is wrong.
    options = words[: words.index("--") if "--" in words else None]
    output = Output(as_json=JSON_OPTION in options, verbose=not VERBOSE_OPTIONS.isdisjoint(options))
    stdout = _identity_of_stdout()
    try:
        _check_current_folder()
        code = int(app(args=words, prog_name="golfray", standalone_mode=False) or 0)
        sys.stdout.flush()
    except PastTheParser as past:
        if isinstance(past.error, BrokenPipeError):
            return _broken_pipe(output, past.error, stdout)
        code = _leave(output, exit_code_of(past.error))
    except KeyboardInterrupt as error:
        code = _leave(output, exit_code_of(error))
    except typer.Abort:
        code = _leave(output, INTERRUPTED)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            # Rich, which prints the help, and the parser end the process themselves, whichever pipe it was.
            return _broken_pipe(output, ended.__context__, stdout)
        # While Ray runs it answers SIGTERM itself, by leaving with the signal's number.
        if ended.code != signal.SIGTERM:
            raise
        code = _leave(output, TERMINATED)
    except BrokenPipeError as error:
        return _broken_pipe(output, error, stdout)
    except Exception as error:  # noqa: BLE001 - the last place that can turn an error into a message
        closed = is_gone(sys.stdout)
        let_go_of_terminal()
        if closed and isinstance(error, OSError) and error.errno == errno.EIO:
            # Of a terminal that was closed under a process that was told not to mind.
            return OUTPUT_CLOSED
        return _explain(output, error)
    let_go_of_terminal()
    if code in (HUNG_UP, INTERRUPTED, TERMINATED):
        print(f"golfray: {MEANINGS[code]}", file=sys.stderr)
    return code


def _check_current_folder() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise NoCurrentFolder("the current folder was deleted; cd to one that exists, and try again") from None


def _leave(output: Output, code: int) -> int:
    """The document of a verb that was ended from outside; returns its exit code."""
    let_go_of_terminal()
    _last_document(output, {**_NOWHERE, "message": MEANINGS[code], "exit_code": code})
    return code


def _broken_pipe(output: Output, error: BrokenPipeError, stdout: tuple[int, int]) -> int:
    """Nobody reads standard output any more, which is nothing to complain of; or it was another pipe."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    closed = any(events & select.POLLERR for _, events in poll.poll(0))
    # Rich puts the null device in the place of a closed output.
    if not closed and _identity_of_stdout() == stdout:
        return _explain(output, error)
    _drop_stdout()
    return OUTPUT_CLOSED


def _identity_of_stdout() -> tuple[int, int]:
    found = os.fstat(sys.stdout.fileno())
    return found.st_dev, found.st_ino


def _explain(output: Output, error: Exception) -> int:
    """Say what went wrong; returns the exit code."""
    code = getattr(error, "exit_code", None)
    show = getattr(error, "show", None)
    message = str(error)
    if show is not None:
        show()  # the parser's own: usage, a hint at --help, the mistake
        message = error.format_message() if hasattr(error, "format_message") else message
    elif code is not None:
        _complain(message)
    elif isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        message, code = f"{_place_of(error)}: {error.strerror or error}", ENVIRONMENT
        _complain(message)
        if output.verbose:
            # It may be a bug of ours all the same, and the message does not say who asked for the file.
            sys.excepthook(type(error), error, error.__traceback__)
    elif (lacking := lacking_memory(error)) is not None:
        said = (message.splitlines() or [type(error).__name__])[0]
        message, code = f"{lacking} ({said}); free memory, or make model or batch smaller", ENVIRONMENT
        _complain(message)
        if output.verbose:
            sys.excepthook(type(error), error, error.__traceback__)
    else:
        message, code = f"this is a bug of golfray ({type(error).__name__}); please report it", BUG
        _complain(message)
        sys.excepthook(type(error), error, error.__traceback__)
    code = USAGE if code is None else int(code)
    place = {name: getattr(error, name, None) for name in _NOWHERE}
    _last_document(output, {**place, "message": message, "exit_code": code})
    return code


def _last_document(output: Output, content: dict[str, Any]) -> None:
    """The document of an error, where standard output takes one: it may be what failed, which has been said then."""
    try:
        output.document("error", content)
    except OSError:
        _drop_stdout()


def _drop_stdout() -> None:
    """What is still buffered would fail once more, when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    """What went wrong, on standard error. A message may have several lines; what it quotes must not be obeyed."""
    from golfray.report.printable import printable

    text = printable(message, keep="\t\n")
    print(f"golfray: {text}", file=sys.stderr)


def _place_of(error: OSError) -> str:
    """The file that an error names. One without a name is of a stream, most often of standard output."""
    if error.filename is not None:
        return str(error.filename)
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return "standard output or a file"


# Where an error is, as far as it says so.
_NOWHERE: dict[str, Any] = {"file": None, "line": None, "column": None, "path": None}
