"""Run by test_exit_codes.py: the command line with one more verb, which ends as it is told to.

``failing.py fail HOW ...`` is that command.
"""

import errno
import os
import signal
import sys
import time

import typer

from golfray.cli import main as cli
from golfray.cli.interrupts import HungUp, Terminated
from golfray.config.errors import ConfigError
from golfray.core.settings import RunSettings
from golfray.ship.launch import LaunchError
from golfray.sweep.events import StudyLocked


def broken_pipe() -> None:
    """To somebody else than the reader of standard output."""
    ours, theirs = os.pipe()
    os.close(ours)
    os.write(theirs, b"x")


def other_pipe_while_nobody_reads() -> None:
    for _ in range(100_000):
        print("a line that is longer than nothing")


def by_ray() -> None:
    sys.exit(signal.SIGTERM)


def by_a_signal() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def by_hanging_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


def after_the_terminal_is_gone() -> None:
    """As where the shell's ``disown`` kept the signal away: somebody closes it, and the verb goes on saying things."""
    print("ready", flush=True)
    while True:
        print("a line", flush=True)
        time.sleep(0.01)


def too_few_minutes() -> None:
    from golfray.sweep.budget import BudgetTooSmall

    raise BudgetTooSmall("budget.minutes: does not hold even one trial")


def raising(error: BaseException) -> object:
    def end() -> None:
        raise error

    return end


# Not of a kind to be run in a row with the others.
ALONE = {"terminal": after_the_terminal_is_gone}

ENDS = {
    "well": lambda: None,
    "bug": lambda: RunSettings(no_such_field=1),
    "broken_pipe": broken_pipe,
    "usage": raising(
        ConfigError("must be > low (0.02), got 0.002", path="knobs.x.high", file="a.yaml", line=14, column=7)
    ),
    "budget": too_few_minutes,
    "file": raising(FileNotFoundError(errno.ENOENT, "No such file or directory", "absent.bin")),
    "memory": raising(MemoryError()),
    "launch": raising(LaunchError("the trial ended with exit code 1")),
    "locked": raising(StudyLocked("studies/muon: another golfray is at work here")),
    "verdict": raising(typer.Exit(7)),
    "interrupt": raising(KeyboardInterrupt()),
    "abort": raising(typer.Abort()),
    "sigterm": by_a_signal,
    "sighup": by_hanging_up,
    "hung_up": raising(HungUp()),
    "terminated": raising(Terminated()),
    "ray": by_ray,
    "closed": other_pipe_while_nobody_reads,
}


def fail(
    how: str,
    as_json: bool = typer.Option(False, "--json"),
    verbose: bool = typer.Option(False, "--verbose", "-v"),
) -> None:
    """End in one of the ways of ENDS."""
    (ENDS | ALONE)[how]()


if __name__ == "__main__":
    cli.app.command()(fail)
    cli.main(sys.argv[1:])
