"""Stretches of code that an interruption waits for: half a record written is worse than none."""

from __future__ import annotations

from types import TracebackType


class Unbroken:
    """Entered where something must be done whole; a signal handler asks :meth:`interrupt` instead of raising.

    Only for handlers of the thread that enters it, as Python's are, which run between two of its steps: what the
    handler sees of a stretch that is not entered twice is therefore exact.
    """

    def __init__(self) -> None:
        self._entered = False
        self._postponed: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """Raise ``error``: now, or at the end of the stretch that this thread is in."""
        if not self._entered:
            raise error
        self._postponed = error

    def __enter__(self) -> Unbroken:
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._entered = False
        postponed, self._postponed = self._postponed, None
        # What went wrong inside is on its way already, and ends more than an interruption.
        if postponed is not None and error is None:
            raise postponed
