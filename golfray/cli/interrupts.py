"""Ctrl-C and SIGTERM while a study runs: gently, firmly, at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from golfray.cli.exit_codes import INTERRUPTED, TERMINATED
from golfray.cli.output import Output

# How long what was said last may take to get out, where nobody reads it.
_LAST_WORDS_S = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM where nothing gentler is possible: like Ctrl-C for whoever cleans up, and told apart at the end."""


class Unwinding:
    """A handler of SIGINT and SIGTERM that unwinds the stack, so that ranks are ended before this process is.

    The exception can get lost: raised in a finalizer or a callback of native code, of which Ray's start has many, it
    ends nothing. ``received`` is the last signal, so that whoever comes next can tell.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def __call__(self, number: int, _frame: object) -> NoReturn:
        self.received = number
        raise _leaving(number)


def _leaving(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


class Interruptible(Protocol):
    """What these handlers ask of a study. Each only sets a flag, since a signal may come between any two bytecodes."""

    def drain(self, reason: str) -> None:
        """Start no further trial; let the running ones end by themselves."""

    def stop(self, reason: str) -> None:
        """Start no further trial and end the running ones cooperatively."""

    def running_words(self) -> str:
        """What runs and how long it may still take, in words."""


class Interrupts:
    """While it is entered, Ctrl-C has three stages: start no more trials, end the running ones, leave at once.

    SIGTERM asks for the second stage directly, since whoever sends it is in a hurry; a second one leaves at once.
    Leaving is ``KeyboardInterrupt`` (:class:`Terminated` for SIGTERM) raised in the main thread. Handlers that were
    there before are put back at the end.
    """

    def __init__(self, study: Interruptible, output: Output) -> None:
        self._study = study
        self._output = output
        self._stage = 0
        self._last: int | None = None
        self._before: dict[int, Any] = {}
        self._saying: list[threading.Thread] = []

    @property
    def exit_code(self) -> int | None:
        """The exit code that follows from what came; None where nothing did."""
        if self._last is None:
            return None
        return INTERRUPTED if self._last == signal.SIGINT else TERMINATED

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if isinstance(before, Unwinding) and before.received is not None:
                # It came before there was anything to interrupt, and got lost.
                raise _leaving(before.received)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for thread in self._saying:
            thread.join(_LAST_WORDS_S)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._last = number
        self._stage = min(self._stage + 1, 3) if number == signal.SIGINT else 2 if self._stage < 2 else 3
        reason = "interrupted" if number == signal.SIGINT else "terminated"
        if self._stage == 1:
            self._study.drain(reason)
            self._say(
                f"interrupted: no more trials are started; {self._study.running_words()}; "
                "Ctrl-C again ends what runs, a third time leaves at once"
            )
        elif self._stage == 2:
            self._study.stop(reason)
            self._say(f"{reason}: ending the running trials; once more to leave at once")
        else:
            raise _leaving(number)

    def _say(self, line: str) -> None:
        # The main thread may be inside a write to the same stream, which a handler must not enter a second time.
        thread = threading.Thread(target=self._print, args=(line,), daemon=True)
        thread.start()
        self._saying.append(thread)

    def _print(self, line: str) -> None:
        # Nobody reads any more: the study does what it was asked all the same.
        with contextlib.suppress(BrokenPipeError):
            self._output.result(line)
