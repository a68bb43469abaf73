"""MLflow as a study happens: whatever the store does, the study goes on, and the store ends up complete."""

import contextlib
import itertools
import logging
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from golfray.tracking import mlflow_observer, store_writer
from golfray.tracking.client import open_store
from golfray.tracking.mlflow_observer import MlflowObserver
from golfray.tracking.replay import replay
from golfray.tracking.store import Store, TrackingError
from tests.tracking.stores import store_content, wait_until


def content(folder):
    return store_content(Store.of(folder).uri)


def undisturbed(folder, empty_database):
    """What a store of this study says that never failed."""
    other = folder.parent / f"{folder.name}-undisturbed"
    other.mkdir()
    for name in ("events.jsonl", "trials"):
        copy = shutil.copytree if (folder / name).is_dir() else shutil.copy
        copy(folder / name, other / name)
    shutil.copy(empty_database, other / "mlflow.db")
    replay(other)
    return content(other)


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """Here a store that works is waited for, on the slowest machine; the limit has tests of its own."""
    monkeypatch.setattr(mlflow_observer, "CLOSE_SECONDS", 300.0)


def two_trials(StudyLog, folder, observer):
    """A study of two trials, told to the observer, which is closed by the caller."""
    log = StudyLog(folder, observer)
    log.start()
    log.run(2.0, 480_000)
    log.run(1.9, 480_000)
    log.append("study_ended", reason="budget: 2 trials", complete=True)


class Watched(MlflowObserver):
    """Keeps what was said."""

    def __init__(self, folder, store=None):
        self.lines = []
        super().__init__(folder, store, self._keep)

    def _keep(self, line):
        # Said on a slow machine only.
        if not line.startswith("waiting for MLflow"):
            self.lines.append(line)

    def said(self, part):
        """Whether a line with ``part`` was said; the study is idle meanwhile, so an old event is told again."""
        if self._told >= 0:
            self.on_event({"seq": self._told, "event": "progress"})
        return any(part in line for line in self.lines)


def test_a_live_study_is_in_the_store_when_it_has_ended_and_nothing_is_said(
    study_folder, mixed_study, empty_database, capfd
):
    logging.getLogger("mlflow").setLevel(logging.INFO)
    observer = Watched(study_folder)
    mixed_study(study_folder, observer)
    assert observer.lines == []
    assert capfd.readouterr() == ("", "")
    live = content(study_folder)
    assert live == undisturbed(study_folder, empty_database)
    assert len(live) == 12


def test_the_store_fills_while_the_study_runs(study_folder, StudyLog):
    observer = Watched(study_folder)
    log = StudyLog(study_folder, observer)
    log.start()
    trial = log.ask("preset")
    log.submit(trial)

    def runs():
        points = "(SELECT count(*) FROM metrics WHERE run_uuid = runs.run_uuid)"
        with contextlib.closing(sqlite3.connect(study_folder / "mlflow.db", timeout=60)) as store:
            return {name: tuple(rest) for name, *rest in store.execute(f"SELECT name, status, {points} FROM runs")}

    wait_until(lambda: runs().get("t000 preset") == ("RUNNING", 0))
    # Few points wait for more of them; many do not wait for the end of the attempt.
    for step in range(store_writer.POINTS_A_CALL):
        log.progress(trial, step, 5.0)
    wait_until(lambda: runs()["t000 preset"][1] >= store_writer.POINTS_A_CALL)
    log.close()
    assert runs()["study muon"][0] == "RUNNING"


def test_an_observer_that_is_told_nothing_starts_nothing(tmp_path):
    observer = Watched(tmp_path)
    observer.close()
    assert os.listdir(tmp_path) == []


def test_a_driver_that_resumes_completes_the_runs_of_the_one_before(study_folder, resumed_study, empty_database):
    class EveryDriver:
        """One observer for each driver, as each has its own process; closed by none that was killed."""

        def __init__(self):
            self.observers = []

        def on_event(self, event):
            if event["event"] in ("study_started", "study_resumed"):
                for observer in self.observers:
                    observer.close()
                self.observers.append(Watched(study_folder))
            self.observers[-1].on_event(event)

        def close(self):
            self.observers[-1].close()

    every = EveryDriver()
    resumed_study(study_folder, every)
    assert len(every.observers) == 3
    assert content(study_folder) == undisturbed(study_folder, empty_database)


def test_a_store_that_is_locked_for_a_while_gets_everything_afterwards(
    study_folder, StudyLog, empty_database, monkeypatch
):
    monkeypatch.setattr("golfray.tracking.store.LOCK_SECONDS", 0.2)
    observer = Watched(study_folder)
    with contextlib.closing(sqlite3.connect(study_folder / "mlflow.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        two_trials(StudyLog, study_folder, observer)
        wait_until(lambda: observer.said("database is locked"))
    observer.close()
    # One line when it began, and one when it was over; the second only if there was time to try again before the end.
    assert observer.lines[0].startswith(f"MLflow at {study_folder}/mlflow.db: database is locked")
    assert observer.lines[0].endswith("; trials go on, and what MLflow lacks is written when it works again")
    assert [line for line in observer.lines[1:] if "works again and has everything so far" not in line] == []
    assert len(observer.lines) <= 2
    assert content(study_folder) == undisturbed(study_folder, empty_database)


def test_a_store_that_never_works_is_said_once_with_the_command_for_later(study_folder, StudyLog, empty_database):
    (study_folder / "mlflow.db").write_text("this is no database" * 99)
    observer = Watched(study_folder)
    two_trials(StudyLog, study_folder, observer)
    observer.close()
    first, last = observer.lines
    path = f"{study_folder}/mlflow.db"
    assert first == (
        f"MLflow at {path}: file is not a database; move the file away: it is made again from the study's log; "
        "trials go on, and what MLflow lacks is written when it works again"
    )
    records = len((study_folder / "events.jsonl").read_text().splitlines())
    assert last.startswith(f"MLflow is behind, at record -1 of {records - 1} ")
    assert last.endswith(f"then: golfray track {study_folder}")
    # What it says to do.
    shutil.move(path, f"{path}.old")
    shutil.copy(empty_database, path)
    replay(study_folder)
    assert content(study_folder) == undisturbed(study_folder, empty_database)


@pytest.mark.slow
def test_a_store_that_is_deleted_under_a_study_is_made_again(study_folder, StudyLog, empty_database):
    observer = Watched(study_folder)
    log = StudyLog(study_folder, observer)
    log.start()
    log.run(2.0, 480_000)
    wait_until(lambda: observer._written == observer._told)
    (study_folder / "mlflow.db").unlink()
    log.run(1.9, 480_000)
    wait_until(lambda: observer.said("no such table"))
    log.end()
    assert content(study_folder) == undisturbed(study_folder, empty_database)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["locked", "read-only", "full"])
def test_a_disk_that_fails_in_the_middle_gets_everything_afterwards(
    tmp_path, empty_database, StudyLog, ran_to_end, mount, how
):
    disk = mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path / "disk")
    with contextlib.ExitStack() as stack:
        database = disk / "runs.db"
        shutil.copy(empty_database, database)
        folder = tmp_path / "study"
        store = Store.of(folder, f"sqlite:///{database}")
        assert store.check() is None
        observer = Watched(folder, store)
        log = StudyLog(folder, observer)
        log.start()
        log.run(2.0, 480_000)
        wait_until(lambda: observer._written == observer._told)

        if how == "locked":
            other = stack.enter_context(contextlib.closing(sqlite3.connect(database)))
            other.execute("BEGIN EXCLUSIVE")
            message = "database is locked"
        elif how == "read-only":
            mount("-o", "remount,ro", disk)
            message = "attempt to write a readonly database; make it writable"
        else:
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            message = "make room"
        for _ in range(3):
            log.run(1.9, 480_000, points=200)
        wait_until(lambda: observer.said(message))
        assert store.uri in observer.lines[0] or str(store.path) in observer.lines[0]

        if how == "locked":
            other.rollback()
        elif how == "read-only":
            mount("-o", "remount,rw", disk)
        else:
            filler.unlink()
        log.end()
        told = store_content(store.uri)
        assert told == undisturbed(folder, empty_database)
        assert len(observer.lines) <= 2, observer.lines


def test_a_bug_of_ours_is_raised_on_the_studys_thread(study_folder, StudyLog):
    observer = Watched(study_folder)
    log = StudyLog(study_folder)
    log.start()
    log.append("attempt_started", trial=0, attempt=1, job_id="a", lane="lane-0")
    observer.on_event({"seq": 1, "event": "attempt_started"})
    with pytest.raises(TrackingError, match=r"MLflow's thread ended after record .*never asked"):
        wait_until(lambda: observer.said("nothing"))
    with pytest.raises(TrackingError):
        observer.close()


class Interrupted:
    """A client whose calls fail from one of them on, before or after they have their effect."""

    def __init__(self, client, count, after):
        self._client, self._left, self._after = client, count, after
        self.failed = False

    def __getattr__(self, name):
        method = getattr(self._client, name)

        def call(*arguments, **named):
            self._left -= 1
            result = method(*arguments, **named) if self._left > 0 or (self._left == 0 and self._after) else None
            if self._left <= 0:
                self.failed = True
                raise ConnectionResetError(104, "Connection reset by peer")
            return result

        return call


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_failed_at_any_call_is_completed_by_the_log(
    tmp_path, empty_database, resumed_study, monkeypatch, after
):
    """One call to real MLflow after another is where the connection breaks: odd ones before it, even ones after it."""
    source = tmp_path / "source"
    resumed_study(source)
    whole = undisturbed(source, empty_database)
    for count in itertools.count(2 if after else 1, 2):
        folder = tmp_path / str(count)
        shutil.copytree(source, folder)
        shutil.copy(empty_database, folder / "mlflow.db")
        made = []

        def opened(mlflow, store, count=count, made=made):
            made.append(Interrupted(open_store(mlflow, store), count, after))
            return made[0]

        with monkeypatch.context() as patch:
            patch.setattr(store_writer, "open_store", opened)
            with contextlib.suppress(TrackingError):
                replay(folder)
        if not made[0].failed:
            break
        replay(folder)
        assert content(folder) == whole, count
        shutil.rmtree(folder)
    assert count > 40


@pytest.mark.slow
def test_a_store_deleted_under_a_client_is_one_message_and_no_traceback(tmp_path, empty_database):
    # In a process of its own: what MLflow logs goes to the stderr that it found when it was imported.
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    program = """
import pathlib, sys
from golfray.tracking.client import explained, load_mlflow, open_store
from golfray.tracking.store import Store, TrackingError
mlflow, store = load_mlflow(), Store.of(pathlib.Path(sys.argv[1]))
client = open_store(mlflow, store)
run = client.create_run(client.create_experiment("study")).info.run_id
store.path.unlink()
try:
    with explained(mlflow, store):
        client.log_batch(run, metrics=[mlflow.entities.Metric("train/loss", 1.0, 0, step) for step in range(3)])
except TrackingError as error:
    print(error.what.removeprefix(f"MLflow at {store.name}: "))
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("no such table: runs\n", "")
