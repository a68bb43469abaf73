"""MLflow's page of one study's own store, on this machine's loopback address and nowhere else."""

from __future__ import annotations

import contextlib
import http.client
import os
import runpy
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

import psutil  # type: ignore[import-untyped]

from golfray.tracking.client import explained, load_mlflow, open_store
from golfray.tracking.projection import VIEW_NAME
from golfray.tracking.store import ARTIFACTS_NAME, Store

HOST = "127.0.0.1"
START_SECONDS = 180.0
STOP_SECONDS = 10.0
PARENT_SECONDS = 1.0


class ServerError(Exception):
    """The page cannot be shown; the message says what to do."""

    exit_code = 4


def serve(study_folder: Path, study: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the MLflow page of the study named ``study`` until Ctrl-C or SIGTERM, then end the server and return.

    ``ready`` is told the page's address once it answers. Raises ``ServerError`` where the port is taken or the server
    does not come up, ``TrackingError`` where the study's store cannot be read. Call it from the main thread.
    """
    store = Store.of(study_folder)
    check_port(port)
    with _sigterm_as_interrupt(), tempfile.TemporaryFile() as output:
        server = _start(store, port, output)
        try:
            experiment = _experiment_id(store, study)
            _wait_until_up(server, port, output)
            view = f"workflowType=machine_learning&viewStateShareKey={VIEW_NAME}"
            ready(f"http://{HOST}:{port}/#/experiments/{experiment}/runs?{view}")
            server.wait()
            raise ServerError(f"MLflow's server ended by itself with code {server.returncode}:\n{_tail(output)}")
        except KeyboardInterrupt:
            return
        finally:
            _stop(server)


def check_port(port: int) -> None:
    """Raise ``ServerError`` where something else listens on the port."""
    with socket.socket() as probe:
        # Without this, a port that was in use a moment ago would look taken for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise ServerError(
                f"port {port} on {HOST} cannot be used ({why}): is another `golfray ui` open there? End what uses it, "
                "or choose another: --port"
            ) from error


def _start(store: Store, port: int, output: IO[bytes]) -> subprocess.Popen[bytes]:
    artifacts = (store.study_folder / ARTIFACTS_NAME).as_uri()
    command = [sys.executable, "-m", __name__, str(os.getpid()), "server", "--host", HOST, "--port", str(port)]
    # One worker: each holds a few hundred megabytes, and one person looks at the page.
    command += ["--workers", "1"]
    command += ["--backend-store-uri", store.uri]
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
        command, cwd=store.study_folder, env=environment, stdout=output, stderr=output, start_new_session=True
    )


def _experiment_id(store: Store, study: str) -> str:
    mlflow = load_mlflow()
    client = open_store(mlflow, store)
    with explained(mlflow, store):
        experiment = client.get_experiment_by_name(study)
    if experiment is None:
        raise ServerError(f"{store.name} does not know the study {study}; write it there: {store.track_command}")
    return str(experiment.experiment_id)


def _wait_until_up(server: subprocess.Popen[bytes], port: int, output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health", timeout=2):
                if _listens(server, port):
                    return
                # Another server took the port since it was looked at, and ours is about to find out.
                time.sleep(0.2)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if time.monotonic() > deadline:
                raise ServerError(
                    f"MLflow did not answer on port {port} within {START_SECONDS:.0f} s ({error}):\n{_tail(output)}"
                ) from error
            time.sleep(0.2)
    check_port(port)
    raise ServerError(f"MLflow's server ended with code {server.returncode} while starting:\n{_tail(output)}")


def _listens(server: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it is this server that listens on the port."""
    try:
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        connections = [connection for process in family for connection in process.net_connections("tcp")]
    except psutil.NoSuchProcess:
        return False
    return any(found.status == psutil.CONN_LISTEN and found.laddr.port == port for found in connections)


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


def _end_with(parent: int) -> None:
    """End this process and all that it started once ``parent`` is gone: one that was killed ends nothing itself."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    # MLflow's own command line, in a process that knows whose it is.
    threading.Thread(target=_end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    runpy.run_module("mlflow", run_name="__main__", alter_sys=True)
