"""A study that is tracked on a real ``mlflow server``: killed, stopped, never there."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from golfray.tracking import mlflow_observer
from golfray.tracking.mlflow_observer import MlflowObserver
from golfray.tracking.replay import replay
from golfray.tracking.store import Store, TrackingError
from tests.ports import free_port, refusing_port
from tests.tracking.stores import MlflowServer, store_content, wait_until

HANG_SECONDS = 120

pytestmark = pytest.mark.slow


def local_content(folder, empty_database):
    """What a local store says of the study that never failed."""
    other = folder.parent / f"{folder.name}-undisturbed"
    shutil.copytree(folder, other)
    shutil.copy(empty_database, other / "mlflow.db")
    replay(other)
    return store_content(Store.of(other).uri)


class Watched(MlflowObserver):
    """Keeps what was said, and lets a test wait for it."""

    def __init__(self, folder, uri):
        self.lines = []
        super().__init__(folder, Store.of(folder, uri), self._keep)

    def _keep(self, line):
        # Said on a slow machine only.
        if not line.startswith("waiting for MLflow"):
            self.lines.append(line)

    def said(self, part):
        self.on_event({"seq": self._told, "event": "progress"})
        return any(part in line for line in self.lines)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of this module's own, which its tests kill and start again."""
    server = MlflowServer(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def running(server):
    """The server, with nothing in it."""
    server.close()
    for path in server.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.start()
    return server


def run_some(log, count):
    for number in range(count):
        log.run(2.0 - number / 100, 480_000, points=30)


def test_killed_in_the_middle_and_started_again(tmp_path, running, StudyLog, empty_database, monkeypatch):
    monkeypatch.setattr(mlflow_observer, "CLOSE_SECONDS", HANG_SECONDS)
    folder = tmp_path / "study"
    observer = Watched(folder, running.uri)
    log = StudyLog(folder, observer)
    log.start()
    run_some(log, 2)
    wait_until(lambda: observer._written == observer._told)
    assert len(store_content(running.uri)) == 3

    running.signal(signal.SIGKILL)
    run_some(log, 3)
    wait_until(lambda: observer.said("Connection refused"))
    (line,) = observer.lines
    went_on = "trials go on, and what MLflow lacks is written when it works again"
    assert line == f"MLflow at {running.uri}: Connection refused; {went_on}"
    running.start()
    run_some(log, 1)
    log.end()
    assert observer.lines[1:] == [f"MLflow at {running.uri} works again and has everything so far"]
    assert store_content(running.uri) == local_content(folder, empty_database)


def test_stopped_and_going_on(tmp_path, running, StudyLog, empty_database, monkeypatch, capfd):
    """While every process of the server stands still, the study's thread has told everything and gone on."""
    monkeypatch.setattr(mlflow_observer, "CLOSE_SECONDS", HANG_SECONDS)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    folder = tmp_path / "study"
    observer = Watched(folder, running.uri)
    log = StudyLog(folder, observer)
    log.start()
    run_some(log, 1)
    wait_until(lambda: observer._written == observer._told)

    running.signal(signal.SIGSTOP)
    study = threading.Thread(target=run_some, args=(log, 4), daemon=True)
    study.start()
    study.join(HANG_SECONDS)
    assert not study.is_alive()
    assert psutil.Process(running._process.pid).status() == psutil.STATUS_STOPPED
    wait_until(lambda: observer.said("no answer within 3 s (MLFLOW_HTTP_REQUEST_TIMEOUT)"))

    running.signal(signal.SIGCONT)
    log.end()
    assert capfd.readouterr() == ("", "")
    assert observer.lines[-1].endswith("works again and has everything so far")
    assert store_content(running.uri) == local_content(folder, empty_database)


FOLLOW = """
import sys
from pathlib import Path
from golfray.sweep.events import LOG_NAME, read_events
from golfray.tracking.mlflow_observer import MlflowObserver
from golfray.tracking.store import Store
folder = Path(sys.argv[1])
observer = MlflowObserver(folder, Store.of(folder, sys.argv[2]))
for event in read_events(folder / LOG_NAME):
    observer.on_event(event)
observer.close()
print("closed", flush=True)
"""


def test_a_server_that_hangs_does_not_hold_the_process_when_the_study_has_ended(
    tmp_path, running, StudyLog, empty_database
):
    folder = tmp_path / "study"
    log = StudyLog(folder)
    log.start()
    run_some(log, 2)
    log.end()
    running.signal(signal.SIGSTOP)
    # No request gives up by itself before the test would.
    environment = {**os.environ, "MLFLOW_HTTP_REQUEST_TIMEOUT": str(10 * HANG_SECONDS)}
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, str(folder), running.uri],
        capture_output=True,
        text=True,
        env=environment,
        timeout=HANG_SECONDS,
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0] == f"waiting for MLflow at {running.uri}, 15 s at most"
    assert lines[1].startswith("MLflow is behind, at record -1 of ")
    command = f"golfray track {folder} --tracking-uri {running.uri}"
    assert lines[1].endswith(f"complete it with: {command}")
    assert lines[2:] == ["closed"]

    running.signal(signal.SIGCONT)
    wait_until(running.answers)
    assert replay(folder, Store.of(folder, running.uri)).created == 3
    assert store_content(running.uri) == local_content(folder, empty_database)
    assert replay(folder, Store.of(folder, running.uri)).unchanged == 3


def test_a_server_that_was_never_there(tmp_path, StudyLog, monkeypatch):
    # Long enough to import MLflow on the slowest machine.
    monkeypatch.setattr(mlflow_observer, "CLOSE_SECONDS", 300.0)
    folder = tmp_path / "study"
    with refusing_port() as port:
        uri = f"http://127.0.0.1:{port}"
        observer = Watched(folder, uri)
        log = StudyLog(folder, observer)
        log.start()
        run_some(log, 2)
        log.end()
        with pytest.raises(TrackingError, match="Connection refused"):
            replay(folder, Store.of(folder, uri))
    assert [line.split(";")[0] for line in observer.lines] == [
        f"MLflow at {uri}: Connection refused",
        f"MLflow is behind, at record -1 of {observer._told} (MLflow at {uri}: Connection refused)",
    ]
    assert observer.lines[-1].endswith(f"complete it with: golfray track {folder} --tracking-uri {uri}")
    # Nothing was made where nobody asked for it.
    assert not (folder / "mlflow.db").exists()


def test_a_server_of_another_kind_is_said(tmp_path, StudyLog):
    """Something answers, but it is not MLflow: Python's own file server."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            store = Store.of(tmp_path / "study", f"http://127.0.0.1:{port}")
            wait_until(lambda: store.check() is None)
            log = StudyLog(tmp_path / "study")
            log.start()
            log.close()
            with pytest.raises(TrackingError, match=rf"MLflow at http://127.0.0.1:{port}: .*404"):
                replay(tmp_path / "study", store)
        finally:
            other.kill()
