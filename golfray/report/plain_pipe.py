"""A rich console that treats a closed pipe as an error like any other."""

from __future__ import annotations

from rich.console import Console


class PlainPipeConsole(Console):
    """Rich ends the whole process where the reader of its output is gone; a study is not to end with its reader."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the ``BrokenPipeError``, which is raised on."""
        raise
