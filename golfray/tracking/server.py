"""``golfray ui``: MLflow's page of one study, on this machine's loopback address and nowhere else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from golfray.sweep.events import LOG_NAME
from golfray.sweep.records import StudyRecord
from golfray.tracking.mlflow_observer import ARTIFACTS_NAME, STORE_NAME, load_mlflow, replay, store_uri
from golfray.tracking.projection import VIEW_NAME

HOST = "127.0.0.1"
DEFAULT_PORT = 5000
START_SECONDS = 90.0
STOP_SECONDS = 10.0


class ServerError(Exception):
    """The page cannot be shown; the message says what to do."""

    exit_code = 4


def serve(study_folder: Path, port: int = DEFAULT_PORT, say: Callable[[str], None] = print) -> None:
    """Serve the study's MLflow page until Ctrl-C or SIGTERM, then end the server and return.

    A study without a store gets one from its event log first. ``say`` receives the few lines meant for the person.
    Raises ``ServerError`` where there is no study, the port is taken or the server does not come up, and
    ``golfray.sweep.events.EventLogError`` where the log is damaged. Call it from the main thread.
    """
    record = StudyRecord.load(study_folder)
    if not record.header:
        raise ServerError(f"{study_folder / LOG_NAME} is empty: the study has not started yet; try again in a moment")
    _check_port(port)
    if not (study_folder / STORE_NAME).is_file():
        say(f"{study_folder / STORE_NAME} is not there: rebuilding it from {LOG_NAME}")
        replay(study_folder)
    with _sigterm_as_interrupt(), tempfile.TemporaryFile() as output:
        server = _start(study_folder, port, output)
        try:
            say(f"starting MLflow for study {record.name} ...")
            experiment = _experiment_id(study_folder, record.name)
            _wait_until_up(server, port, output)
            view = f"workflowType=machine_learning&viewStateShareKey={VIEW_NAME}"
            say(f"http://{HOST}:{port}/#/experiments/{experiment}/runs?{view}")
            say("Ctrl-C ends it")
            server.wait()
            raise ServerError(f"MLflow's server ended by itself with code {server.returncode}:\n{_tail(output)}")
        except KeyboardInterrupt:
            say("stopped")
        finally:
            _stop(server)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        # Without this, a port that was in use a moment ago would look taken for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ServerError(
                f"port {port} on {HOST} cannot be used ({error}); close what uses it, or choose another: --port"
            ) from error


def _start(study_folder: Path, port: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    artifacts = (study_folder.resolve() / ARTIFACTS_NAME).as_uri()
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)]
    # One worker: each holds a few hundred megabytes, and one person looks at the page.
    command += ["--workers", "1"]
    command += ["--backend-store-uri", store_uri(study_folder)]
    command += ["--no-serve-artifacts", "--default-artifact-root", artifacts]
    # Any port: behind `ssh -L` the browser names the port of its own machine.
    command += ["--allowed-hosts", "127.0.0.1:*,localhost:*"]
    environment = {
        **os.environ,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        # The job runner serves MLflow's LLM evaluations only, with processes of its own.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    # A session of its own, so that Ctrl-C reaches this process alone and the whole group can be ended below.
    return subprocess.Popen(
        command, cwd=study_folder, env=environment, stdout=output, stderr=output, start_new_session=True
    )


def _experiment_id(study_folder: Path, name: str) -> str:
    tracking, _entities = load_mlflow()
    experiment = tracking.MlflowClient(tracking_uri=store_uri(study_folder)).get_experiment_by_name(name)
    if experiment is None:
        raise ServerError(
            f"{study_folder / STORE_NAME} knows no study {name}; delete the file and run `golfray ui` again, "
            f"which rebuilds it from {LOG_NAME}"
        )
    return str(experiment.experiment_id)


def _wait_until_up(server: subprocess.Popen[bytes], port: int, output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline:
                raise ServerError(
                    f"MLflow did not answer on port {port} within {START_SECONDS:.0f} s ({error}):\n{_tail(output)}"
                ) from error
            time.sleep(0.2)
    raise ServerError(f"MLflow's server ended with code {server.returncode} while starting:\n{_tail(output)}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    try:
        if server.poll() is None:
            server.terminate()
            # Past the limit the group is killed, which is all that is left to do.
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(STOP_SECONDS)
    finally:
        # The usual case is that everything the server started has ended and there is no group any more.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _tail(output: IO[bytes], characters: int = 3000) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")[-characters:]


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("serve() handles signals and must be called from the main thread")

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
