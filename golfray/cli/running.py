"""Verbs for studies that run in another shell: ``ls`` and ``stop``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from golfray.cli.exit_codes import ENVIRONMENT
from golfray.cli.options import STUDY_ARGUMENT
from golfray.cli.output import Output, with_output

if TYPE_CHECKING:
    from golfray.sweep.study_folder import Driver

# A running trial ends at its next step or is killed after 30 s, and then Ray is shut down.
_WAIT_S = 180.0
_LOOK_S = 0.2


class CannotStop(Exception):
    """The driver cannot be asked from here, or is still at work."""

    exit_code = ENVIRONMENT


@with_output
def list_studies(
    folder: Path = typer.Argument(Path("studies"), help="Folder with studies."),
    *,
    output: Output,
) -> None:
    """List the studies of a folder: which run, how far they are, and their best."""
    import time

    from golfray.report.study_list import list_lines
    from golfray.report.study_list import list_studies as find

    found = find(folder, time.time())
    output.result(*(list_lines(found) if found else [f"no study in {folder}/"]))
    output.document("studies", {"folder": str(folder), "studies": [study.document() for study in found]})


@with_output
def stop(
    study: str | None = STUDY_ARGUMENT,
    drain: bool = typer.Option(False, "--drain", help="Let the running trials end by themselves, and do not wait."),
    *,
    output: Output,
) -> None:
    """End a study that runs on this machine: its running trials stop at their next step, and nothing is lost.

    A second time it leaves at once. `golfray tune --resume` goes on with it.
    """
    import os
    import shlex
    import signal
    import time

    from golfray.report.lookup import find_study
    from golfray.sweep.study_folder import is_held

    folder = find_study(study)
    driver = _driver_of(folder)
    if driver is None:
        output.result(f"{folder}: nothing is at work on it")
        output.document("stop", {"folder": str(folder), "driver": None, "ended": True})
        return
    # What Ctrl-C does first, and what it does next (docs/exit_codes.md).
    try:
        os.kill(driver.pid, signal.SIGINT if drain else signal.SIGTERM)
    except PermissionError as error:
        raise CannotStop(f"{folder}: {driver} is another user's; call `golfray stop` as that user") from error
    except ProcessLookupError as error:
        raise CannotStop(f"{folder}: {driver} has just ended; `golfray status` says how far it came") from error
    if drain:
        output.result(f"{folder}: process {driver.pid} starts no more trials; `golfray status` says what still runs")
    else:
        output.say(f"{folder}: process {driver.pid} is ending its running trials")
        give_up = time.monotonic() + _WAIT_S
        while is_held(folder):
            if time.monotonic() > give_up:
                raise CannotStop(
                    f"{folder}: process {driver.pid} is still at work after {_WAIT_S:g} s; once more leaves at once"
                )
            time.sleep(_LOOK_S)
        output.result(f"{folder}: ended; `golfray tune --resume {shlex.quote(str(folder))}` goes on")
    ended = not is_held(folder)
    output.document("stop", {"folder": str(folder), "driver": driver.pid, "ended": ended})


def _driver_of(folder: Path) -> Driver | None:
    """The driver that runs a study on this machine; None where nothing holds the study.

    Raises :class:`CannotStop` where another machine's process holds it, or one that drives nothing.
    """
    import socket

    import psutil  # type: ignore[import-untyped]

    from golfray.sweep.study_folder import driver_of, is_held

    driver = driver_of(folder) if is_held(folder) else None
    if driver is None:
        if is_held(folder):
            raise CannotStop(f"{folder}: a process that has not signed yet holds it; try again")
        return None
    if not driver.drives:
        raise CannotStop(f"{folder}: {driver} is at work on it and runs no trial; it ends by itself")
    if driver.host != socket.gethostname():
        raise CannotStop(f"{folder}: {driver} runs it; call `golfray stop` there")
    # Its number may be another process's by now, where it is of a container with numbers of its own.
    try:
        lives = psutil.Process(driver.pid).create_time() <= driver.started
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        lives = False
    if not lives:
        raise CannotStop(f"{folder}: {driver} holds it, but no such process is to be seen from here")
    return driver
