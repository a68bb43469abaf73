"""A clock that only moves when it is told to."""

from __future__ import annotations


class FakeClock:
    """Unix seconds. A study reads it for its log and its budget; the executor moves it to whatever happens next."""

    def __init__(self, start: float) -> None:
        self._now = start

    def now(self) -> float:
        """What it says."""
        return self._now

    def move_to(self, when: float) -> None:
        """Go on to ``when``; it never goes back."""
        self._now = max(self._now, when)
