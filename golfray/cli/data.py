"""Verbs about training data: ``golfray data build``, ``check`` and ``fetch``."""

from __future__ import annotations

import typer

data_app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@data_app.callback()
def data() -> None:
    """Build, check and fetch training data."""
