"""A line now and then about work that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Says a line where ``seconds`` have passed since the last one, or since the start."""

    def __init__(self, say: Callable[[str], None], seconds: float = 10.0) -> None:
        self._say = say
        self._seconds = seconds
        self._last = time.monotonic()

    def at(self, line: str) -> None:
        """The work has come to where ``line`` says."""
        now = time.monotonic()
        if now - self._last >= self._seconds:
            self._last = now
            self._say(line)
