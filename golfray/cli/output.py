"""What a verb says: lines for a person, or documents for a program; the three options are the same on every verb.

With ``--json`` standard output carries nothing but JSON, one document a line, and the lines for a person go to
standard error.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

JSON_SCHEMA = "golfray/1"

JSON_OPTION = "--json"
VERBOSE_OPTIONS = frozenset({"-v", "--verbose"})

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "as_json": (bool, typer.Option(False, JSON_OPTION, help="Print JSON, one document a line, on standard output.")),
    "quiet": (bool, typer.Option(False, "--quiet", "-q", help="Print results and errors only.")),
    "verbose": (bool, typer.Option(False, "--verbose", "-v", help="Print more about what is done and why.")),
}


class Output:
    """Where a verb's words go. ``as_json``: documents are printed, and lines go to standard error."""

    def __init__(self, as_json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose and not quiet

    def say(self, *lines: str) -> None:
        """Lines about what is being done; left out with ``-q``."""
        if not self.quiet:
            self.result(*lines)

    def detail(self, *lines: str) -> None:
        """Lines that only ``-v`` shows."""
        if self.verbose:
            self.result(*lines)

    def result(self, *lines: str) -> None:
        """Lines that are what the verb was called for; on standard error where documents are asked for.

        What a terminal would obey is written out in them, wherever they go: they may quote a study's log.
        """
        from golfray.report.printable import printable

        self.as_it_is(*(printable(line, keep="\t") for line in lines))

    def as_it_is(self, *lines: str) -> None:
        """Lines of which nothing is changed: only for text that is meant for no terminal."""
        stream = sys.stderr if self.as_json else sys.stdout
        for line in lines:
            # With its end in one piece: another thread may be writing too.
            stream.write(f"{line}\n")
            stream.flush()

    def console(self) -> Console:
        """Where tables and live displays go: the stream of the lines.

        It is a terminal only where that stream is one, whatever FORCE_COLOR says; with NO_COLOR nothing is styled.
        """
        from golfray.report.plain_pipe import PlainPipeConsole

        stream = sys.stderr if self.as_json else sys.stdout
        return PlainPipeConsole(
            file=stream,
            force_terminal=stream.isatty(),
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
        )

    def document(self, kind: str, content: dict[str, Any]) -> None:
        """One JSON document, ``{"schema": ..., "kind": kind, **content}``; nothing where lines are asked for.

        Floats that strict JSON cannot hold become null.
        """
        if self.as_json:
            document = {"schema": JSON_SCHEMA, "kind": kind, **content}
            sys.stdout.write(json.dumps(_finite(document), allow_nan=False, default=str) + "\n")
            sys.stdout.flush()


def with_output(function: Callable[..., None]) -> Callable[..., None]:
    """A verb from a function with a parameter ``output``: the options that decide it stand in its place."""
    hints = typing.get_type_hints(function)
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
        if name != "output"
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)
        for name, (kind, option) in _OPTIONS.items()
    ]

    def verb(as_json: bool, quiet: bool, verbose: bool, **arguments: Any) -> None:
        function(output=Output(as_json, quiet, verbose), **arguments)

    # What typer reads: not functools.wraps, behind which it would find the parameters of what is wrapped.
    verb.__name__, verb.__doc__, verb.__module__ = function.__name__, function.__doc__, function.__module__
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(verb)["__signature__"] = signature.replace(parameters=parameters)
    return verb


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
