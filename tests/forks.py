"""Processes of golfray that need not load torch anew: they are forked from one that has (fork_server.py).

What torch reads when it is loaded, such as OMP_NUM_THREADS, stays as it was then; programs call torch to change it.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

SERVER = pathlib.Path(__file__).with_name("fork_server.py")
TIMEOUT_S = 600.0


class Forked:
    """A process that runs a program; ``pid`` is also its group's number."""

    def __init__(self, connection: socket.socket, request: dict[str, object]) -> None:
        self._connection = connection
        self._outputs = tempfile.TemporaryDirectory(prefix="golfray-fork-")
        self._files = {name: pathlib.Path(self._outputs.name) / name for name in ("out", "err")}
        for file in self._files.values():
            file.touch()
        files = {name: str(file) for name, file in self._files.items()}
        connection.sendall(json.dumps({**request, **files}).encode() + b"\n")
        self._answers = connection.makefile("r", encoding="utf-8")
        self.pid = int(self._answers.readline())

    def said(self) -> str:
        """What it has written to standard output so far."""
        return self._files["out"].read_text(encoding="utf-8")

    def end(self) -> tuple[int, str, str]:
        """Its exit code when it has ended, or minus the number of the signal that killed it, and both outputs.

        Raises TimeoutError, after having killed its group, where that takes longer than :data:`TIMEOUT_S`.
        """
        try:
            code = int(self._answers.readline())
        except TimeoutError:
            os.killpg(self.pid, signal.SIGKILL)
            raise
        out, err = (file.read_text(encoding="utf-8") for file in self._files.values())
        self.abandon()
        return code, out, err

    def abandon(self) -> None:
        """Look at it no more, as happens when a test fails; if it still runs, it is killed."""
        self._answers.close()
        self._connection.close()
        self._outputs.cleanup()


class Forks:
    """A server of forks, with which it can be connected at ``address``."""

    def __init__(self, address: pathlib.Path) -> None:
        self._address = address

    def start(
        self,
        program: str,
        *arguments: object,
        folder: pathlib.Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        """Start ``python -c program arguments`` in ``folder`` and ``environment``, both this process's by default."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(self._address))
        request = {
            "program": program,
            "argv": ["-c", *map(str, arguments)],
            "folder": str(folder or pathlib.Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
        }
        return Forked(connection, request)


@contextlib.contextmanager
def forks(environment: Mapping[str, str]) -> Iterator[Forks]:
    """A server of forks for as long as the block lasts; its packages are loaded in ``environment``."""
    with tempfile.TemporaryDirectory(prefix="golfray-forks-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = pathlib.Path(folder) / "socket"
        listener.bind(str(address))
        listener.listen()
        command: Sequence[str] = [sys.executable, str(SERVER), str(listener.fileno())]
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()]
        ) as server:
            yield Forks(address)
            assert server.stdin is not None
            server.stdin.close()
