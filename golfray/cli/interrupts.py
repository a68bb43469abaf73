"""Ctrl-C, SIGTERM and a terminal that is closed, while a study runs: gently, firmly, at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol, TextIO

from golfray.cli.exit_codes import HUNG_UP, INTERRUPTED, TERMINATED
from golfray.cli.output import Output

# How long what was said last may take to get out, where nobody reads it.
_LAST_WORDS_S = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM where nothing gentler is possible: like Ctrl-C for whoever cleans up, and told apart at the end."""


class HungUp(KeyboardInterrupt):
    """SIGHUP, in the same way: the terminal was closed, or the connection to it lost."""


_ERRORS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}
_CODES = {KeyboardInterrupt: INTERRUPTED, Terminated: TERMINATED, HungUp: HUNG_UP}
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


def exit_code_of(left: KeyboardInterrupt) -> int:
    """The exit code of a verb that was left by one of these."""
    return _CODES[type(left)]


class Unwinding:
    """A handler of signals that unwinds the stack, so that ranks are ended before this process is.

    The exception can get lost: raised in a finalizer or a callback of native code, of which Ray's start has many, it
    ends nothing. ``received`` is the last signal, so that whoever comes next can tell.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def install(self) -> None:
        """Handle what asks this process to end; not Ctrl-C or a hangup where it is ignored.

        The one is in the background of a shell script, the other under ``nohup``.
        """
        signal.signal(signal.SIGTERM, self)
        for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
            if signal.getsignal(number) is usual:
                signal.signal(number, self)

    def __call__(self, number: int, _frame: object) -> NoReturn:
        self.received = number
        if number == signal.SIGHUP:
            let_go_of_terminal()
        raise _leaving(number)


def _leaving(number: int) -> KeyboardInterrupt:
    return _ERRORS[signal.Signals(number)]()


def is_gone(stream: TextIO) -> bool:
    """Whether a terminal that was written to has been closed; every write to it fails."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def let_go_of_terminal() -> None:
    """What is still said after a terminal was closed goes nowhere, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if is_gone(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Interruptible(Protocol):
    """What these handlers ask of a study. A signal may come between any two bytecodes, so most only set a flag."""

    def drain(self, reason: str) -> None:
        """Start no further trial; let the running ones end by themselves."""

    def stop(self, reason: str) -> None:
        """Start no further trial and end the running ones cooperatively."""

    def leave(self, error: BaseException) -> None:
        """Raise ``error`` as soon as what may not be broken off is done."""

    def running_words(self) -> str:
        """What runs and how long it may still take, in words."""


class Interrupts:
    """While it is entered, Ctrl-C has three stages: start no more trials, end the running ones, leave at once.

    SIGTERM asks for the second stage directly, since whoever sends it is in a hurry; a second one leaves at once. So
    does a closed terminal (SIGHUP, where it is not ignored), but never for more, since it is often told so twice.
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
        return None if self._last is None else exit_code_of(_leaving(self._last))

    def __enter__(self) -> Interrupts:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            before = signal.getsignal(number)
            if isinstance(before, Unwinding) and before.received is not None:
                # It came before there was anything to interrupt, and got lost.
                raise _leaving(before.received)
        for number in numbers:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for thread in self._saying:
            thread.join(_LAST_WORDS_S)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._last = number
        if number == signal.SIGINT:
            self._stage = min(self._stage + 1, 3)
        elif number == signal.SIGHUP:
            let_go_of_terminal()
            self._stage = max(self._stage, 2)
        else:
            self._stage = 2 if self._stage < 2 else 3
        reason = _WORDS[signal.Signals(number)]
        if self._stage == 1:
            self._study.drain(reason)
            self._say(self._draining)
        elif self._stage == 2:
            self._study.stop(reason)
            self._say(lambda: f"{reason}: ending the running trials; once more to leave at once")
        elif number != signal.SIGHUP:
            self._study.leave(_leaving(number))

    def _draining(self) -> str:
        return (
            f"interrupted: no more trials are started; {self._running_words()}; "
            "Ctrl-C again ends what runs, a third time leaves at once"
        )

    def _running_words(self) -> str:
        try:
            return self._study.running_words()
        except Exception:  # noqa: BLE001 - the study goes on while its record is read: it may change under the reader
            return "what runs needs an unknown time more"

    def _say(self, words: Callable[[], str]) -> None:
        # Nothing is worked out in the handler, which may interrupt anything. Nor may it write: the main thread may be
        # inside a write to the same stream.
        thread = threading.Thread(target=self._print, args=(words,), daemon=True)
        thread.start()
        self._saying.append(thread)

    def _print(self, words: Callable[[], str]) -> None:
        # Nobody reads any more: the study does what it was asked all the same.
        with contextlib.suppress(OSError):
            self._output.result(words())
