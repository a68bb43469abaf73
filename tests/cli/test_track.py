"""``golfray track`` and ``golfray ui``: a study's log into MLflow, and its page."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from golfray.sweep.study_folder import no_driver_in, only_driver_of
from tests.ports import free_port, refusing_port


def load_studies():
    """The studies that ``tests/tracking/conftest.py`` writes."""
    path = Path(__file__).parents[1] / "tracking" / "conftest.py"
    spec = importlib.util.spec_from_file_location("golfray_cli_study_log", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


studies = load_studies()


@pytest.fixture(scope="module")
def study(golfray):
    """A study with a log and no store."""
    folder = golfray.folder / "studies" / "muon"
    log = studies.StudyLog(folder)
    log.start()
    log.run(2.0, 480_000, role="preset")
    log.run(1.9, 560_000)
    log.end()
    return folder


def test_a_store_is_made_and_the_document_says_what_was_written(golfray, study):
    ended = golfray.run("track", "muon", "--json")
    assert (ended.code, ended.err) == (0, f"{study}/mlflow.db: 3 runs: 3 made; 75 points and 6 files written\n")
    assert json.loads(ended.out) == {
        "schema": "golfray/1",
        "kind": "track",
        "study": "muon",
        "folder": str(study),
        "store": f"{study}/mlflow.db",
        "runs": 3,
        "created": 3,
        "updated": 0,
        "unchanged": 0,
        "points": 75,
        "files": 6,
        "duplicates": 0,
        "missing": 0,
        "left_out": 0,
    }


@pytest.mark.slow
def test_a_complete_store_is_left_alone_and_a_half_written_one_completed(golfray, study, tmp_path):
    folder = tmp_path / "muon"
    shutil.copytree(study, folder, ignore=shutil.ignore_patterns("mlflow.db", "mlartifacts"))
    golfray.run("track", folder)
    ended = golfray.run("track", folder)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{folder}/mlflow.db: 3 runs, complete already: nothing was written\n"
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as store, store:
        # As it was when the second trial had not ended yet.
        (run,) = store.execute("SELECT run_uuid FROM runs WHERE name = 't001 sampler'").fetchone()
        for table in ("metrics", "latest_metrics"):
            store.execute(f"DELETE FROM {table} WHERE run_uuid = ?", (run,))
        store.execute("DELETE FROM tags WHERE run_uuid = ? AND key IN ('golfray.seq', 'golfray.outcome')", (run,))
        store.execute("UPDATE runs SET status = 'RUNNING', end_time = NULL WHERE run_uuid = ?", (run,))
    ended = golfray.run("track", folder, "-q")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"{folder}/mlflow.db: 3 runs: 1 brought up to date, 2 complete already; 35 points and 0 files written\n"
    )


def test_no_study_and_a_wrong_address(golfray, study):
    nothing = golfray.run("track", "nothing")
    password = golfray.run("track", "muon", "--tracking-uri", "http://me:s3cret@tracker.example.org")
    assert (nothing.code, password.code) == (2, 2)
    assert "nothing: no study here" in nothing.one_line()
    assert "MLFLOW_TRACKING_PASSWORD" in password.one_line()
    assert "s3cret" not in password.out + password.err


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_or_made(golfray, study):
    folder = golfray.run("track", "muon", "--tracking-uri", "sqlite:///missing/folder/runs.db")
    with refusing_port() as port:
        server = golfray.run("track", "muon", "--tracking-uri", f"http://127.0.0.1:{port}")
    assert (folder.code, server.code) == (4, 4)
    assert f"{golfray.folder}/missing/folder: No such file or directory; mend that, or name" in folder.one_line()
    assert server.one_line() == f"golfray: MLflow at http://127.0.0.1:{port}: Connection refused"


def test_while_a_driver_is_at_work_it_alone_writes(golfray, study):
    with only_driver_of(study):
        ended = golfray.run("track", "muon")
    assert ended.code == 5
    assert ended.one_line().startswith(f"golfray: {study}: `golfray tune` (process {os.getpid()} on ")
    assert ended.one_line().endswith(") is at work here and writes MLflow itself; call this again when it has ended")


def test_while_it_is_tracked_status_says_by_whom_and_nobody_resumes_it(golfray, study):
    with no_driver_in(study, "track"):
        ends = golfray.run_all({"status": ["status", "muon"], "tune": ["tune", "--resume", "muon"]})
    tracker = f"`golfray track` (process {os.getpid()} on "
    first = ends["status"].out.splitlines()[0]
    assert first.startswith(f"study muon in studies/muon: ended, budget: 8 trials; at work on it: {tracker}")
    assert ends["tune"].code == 5
    assert ends["tune"].one_line().startswith(f"golfray: {study}: {tracker}")
    assert (
        ends["tune"]
        .one_line()
        .endswith(") writes MLflow from its log; wait until that has ended, or end it: nothing is lost")
    )


def read_only(study, place, mount):
    """A copy of a study, without a store, on a disk that may only be read."""
    shutil.copytree(study, place, ignore=shutil.ignore_patterns("mlflow.db", "mlartifacts"))
    mount("--bind", place, place)
    mount("-o", "remount,bind,ro", place)
    return place


def test_an_archive_that_may_only_be_read_wants_a_store_elsewhere(golfray, study, tmp_path, mount):
    archive = read_only(study, tmp_path / "archive", mount)
    ended = golfray.run("track", archive)
    assert ended.code == 4
    assert ended.one_line() == (
        f"golfray: {archive}/mlflow.db: MLflow's store cannot be written: {archive}: it may only be read; "
        "mend that, or name another store with --tracking-uri"
    )


@pytest.mark.slow
def test_an_archive_that_may_only_be_read_is_tracked_elsewhere(golfray, study, tmp_path, mount):
    archive = read_only(study, tmp_path / "archive", mount)
    ended = golfray.run("track", archive, "--tracking-uri", f"sqlite:///{tmp_path}/all.db")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{tmp_path}/all.db: 3 runs: 3 made; 75 points and 6 files written\n"
    # It has no --tracking-uri, so it says what else can be done.
    shown = golfray.run("ui", archive, "--port", free_port())
    assert shown.code == 4
    assert f"MLflow at {archive}/mlflow.db: " in shown.one_line()
    assert "Read-only file system; make it writable" in shown.one_line()


def test_ui_of_a_port_that_is_taken(golfray, study):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = golfray.run("ui", "muon", "--port", port)
    assert ended.code == 4
    assert ended.one_line() == (
        f"golfray: port {port} on 127.0.0.1 cannot be used (Address already in use): "
        "is another `golfray ui` open there? End what uses it, or choose another: --port"
    )


@pytest.mark.slow
def test_ui_completes_the_store_first_and_while_a_driver_is_at_work_shows_it_as_it_is(golfray, study, tmp_path):
    folder = tmp_path / "muon"
    shutil.copytree(study, folder, ignore=shutil.ignore_patterns("mlflow.db", "mlartifacts"))
    port = free_port()
    first = golfray.start("ui", folder, "--port", port)
    assert "3 runs: 3 made" in first.wait_for_line(f"{folder}/mlflow.db: ")
    url = first.wait_for_line("http://").strip()
    with urllib.request.urlopen(url, timeout=30) as page:
        assert page.status == 200
    # A second one on the same port.
    again = golfray.run("ui", folder, "--port", port)
    assert (again.code, again.out) == (4, "")
    assert f"port {port} on 127.0.0.1 cannot be used" in again.one_line()
    first.process.send_signal(signal.SIGINT)
    ended = first.end()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-2:] == ["Ctrl-C ends it", "stopped"]

    with only_driver_of(folder):
        (folder / "mlflow.db").rename(folder / "elsewhere.db")
        none = golfray.run("ui", folder, "--port", port)
        assert none.code == 5
        (folder / "elsewhere.db").rename(folder / "mlflow.db")
        shown = golfray.start("ui", folder, "--port", port, "--json")
        document = json.loads(shown.wait_for_line("{"))
        assert (document["kind"], document["study"], document["url"]) == ("ui", "muon", url)
        shown.process.send_signal(signal.SIGTERM)
        ended = shown.end()
    assert ended.code == 0
    assert "keeps" not in ended.out
    assert f"{folder}: `golfray tune` (process {os.getpid()} on " in ended.err
    assert "MLflow is shown as it is now\n" in ended.err
    assert first.left_processes() == shown.left_processes() == []


def test_help_loads_no_mlflow():
    program = (
        "import sys; import golfray.cli.track; print(sorted({'mlflow', 'sqlalchemy', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
