"""Something drawn at the bottom of a terminal, again and again, while lines are printed above it.

Rich takes the height of what stands there when a print begins, and writes over it when the print ends: of two threads
that print at once, one writes over what the other has just drawn. So whatever draws or prints takes one lock first,
what other parts of the program write to their outputs too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

REFRESH_PER_SECOND = 4


class LiveDisplay:
    """Draws what ``drawn`` returns on ``console``, a terminal, from :meth:`start` to :meth:`stop`.

    In between ``sys.stdout`` and ``sys.stderr``, where they are terminals, print above it. ``drawn`` is called from
    another thread.
    """

    def __init__(self, console: Console, drawn: Callable[[], RenderableType]) -> None:
        self._console = console
        self._lock = threading.RLock()
        self._live = Live(
            get_renderable=drawn, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="live display", daemon=True)
        self._replaced: dict[str, tuple[IO[str], FileProxy]] = {}

    def start(self) -> None:
        """Draw for the first time, and from then on a few times a second."""
        with self._lock:
            self._live.start(refresh=True)
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream.isatty():
                    self._replaced[name] = stream, _Above(self._console, stream, self._lock)
                    setattr(sys, name, self._replaced[name][1])
        self._thread.start()

    def print(self, *lines: Text, soft_wrap: bool = False) -> None:
        """Print lines above it."""
        with self._lock:
            for line in lines:
                self._console.print(line, soft_wrap=soft_wrap)

    def stop(self) -> None:
        """Draw a last time and leave that there."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            for name, (stream, above) in self._replaced.items():
                above.flush()
                if getattr(sys, name) is above:
                    setattr(sys, name, stream)
            self._live.stop()

    def _redraw(self) -> None:
        while not self._ended.wait(1 / REFRESH_PER_SECOND):
            with self._lock:
                self._live.refresh()


class _Above(FileProxy):
    """An output of the process whose lines are printed above what is drawn."""

    def __init__(self, console: Console, stream: IO[str], lock: AbstractContextManager[Any]) -> None:
        super().__init__(console, stream)
        self._lock = lock

    def write(self, text: str) -> int:
        with self._lock:
            return super().write(text)

    def flush(self) -> None:
        with self._lock:
            super().flush()
