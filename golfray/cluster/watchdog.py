"""Ends a Ray session whose driver died without a word: ``python -m golfray.cluster.watchdog TEMP_FOLDER``.

A driver that is killed cannot clean up, and some of Ray's servers outlive it by minutes. This process sleeps on a pipe
whose other end only the driver holds. A byte means that the driver has ended the session itself; the end of the pipe
without one means that it is gone. Either way this process ends within seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import golfray
from golfray.cluster.session_processes import MARK, end_processes
from golfray.cluster.temp_folder import discard_temp_folder

_PATIENCE_SECONDS = 8.0
_GOODBYE = b"."


class Watchdog:
    """The driver's side: starts the process, and says goodbye to it."""

    def __init__(self, temp_folder: Path) -> None:
        # It must find this golfray, however this process found it.
        paths = [str(Path(golfray.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        # Its own session: what a terminal sends to the driver's processes must not end it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "golfray.cluster.watchdog", str(temp_folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), MARK: str(temp_folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id, which is not one of the session's."""
        return self._process.pid

    def dismiss(self) -> None:
        """The session has ended; waits until the process has, too, and ends one that does not hear of it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_GOODBYE)
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # somebody ended it before
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            # It is stopped, or the machine is too busy for it; there is nothing left that it could do.
            self._process.kill()
            self._process.wait()


def main(temp_folder: Path) -> int:
    """Wait for the driver's end; returns 0, or 1 where processes of its session could not be ended."""
    if os.read(sys.stdin.fileno(), 1) == _GOODBYE:
        return 0
    left = end_processes(temp_folder, {os.getpid()}, _PATIENCE_SECONDS)
    discard_temp_folder(temp_folder)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
