"""Real MLflow stores for tests: their content, a server that can be killed and stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.ports import free_port


def store_content(uri: str) -> dict[str, Any]:
    """All that an MLflow store says of its studies, by the names of runs instead of their random ids.

    When a run ended is left out while it runs: MLflow keeps the time of an earlier end.
    """
    from golfray.tracking.client import load_mlflow

    client = load_mlflow().client(tracking_uri=uri)
    told: dict[str, Any] = {}
    for experiment in client.search_experiments():
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        names = {run.info.run_id: run.info.run_name for run in runs}
        assert len(set(names.values())) == len(names), "two runs for one thing"
        for run in runs:
            curves = {
                metric: sorted(
                    (point.step, point.timestamp, str(point.value))
                    for point in client.get_metric_history(run.info.run_id, metric)
                )
                for metric in run.data.metrics
            }
            info = run.info.status, run.info.start_time, run.info.status == "RUNNING" or run.info.end_time
            tags = {tag: names.get(value, value) for tag, value in run.data.tags.items() if tag != "mlflow.user"}
            files = sorted(item.path for item in client.list_artifacts(run.info.run_id))
            told[f"{experiment.name}/{run.info.run_name}"] = (info, tags, run.data.params, curves, files)
    return told


@contextlib.contextmanager
def answering(answer: bytes, port: int = 0) -> Iterator[str]:
    """The address of a server on loopback that answers whatever it is asked with the same bytes, and hangs up.

    ``port`` 0 takes one that is free.
    """

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class MlflowServer:
    """A real ``mlflow server`` on loopback, with a database and files of its own that outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        database, files = f"sqlite:///{self.folder / 'server.db'}", str(self.folder / "files")
        command = [sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={self.port}", "--workers=1"]
        command += ["--backend-store-uri", database, "--artifacts-destination", files]
        with (self.folder / "server.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + 180
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.2)

    def answers(self) -> bool:
        """Whether it answers now."""
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def signal(self, number: int) -> None:
        """Send a signal to all its processes; with SIGKILL wait until nothing listens any more."""
        assert self._process is not None
        os.killpg(self._process.pid, number)
        if number == signal.SIGKILL:
            self._process.wait()
            self._process = None
            # The process that is waited for only started the one that listens. Whoever calls while that one goes gets
            # another error than afterwards.
            wait_until(self._refuses)

    def _refuses(self) -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == errno.ECONNREFUSED

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Poll until ``condition()`` is true; the test fails if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
