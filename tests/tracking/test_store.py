"""What ``--tracking-uri`` may name, and what a store says of itself before a study starts."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from golfray.tracking.store import FREE_BYTES, Store, TrackingError, TrackingUriError
from tests.ports import refusing_port
from tests.tracking.stores import answering


def test_without_an_address_the_store_is_the_studys_own(tmp_path):
    store = Store.of(tmp_path)
    assert (store.path, store.uri) == (tmp_path / "mlflow.db", f"sqlite:///{tmp_path}/mlflow.db")
    assert (store.is_own, store.is_server, store.exists) == (True, False, False)
    assert store.track_command == f"golfray track {tmp_path}"
    assert store == Store.of(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")


def test_a_server_loses_its_last_slash_and_keeps_its_path(tmp_path):
    store = Store.of(tmp_path, "https://tracker.example.org:8443/mlflow/")
    assert (store.uri, store.name, store.path) == ("https://tracker.example.org:8443/mlflow",) * 2 + (None,)
    assert store.is_server
    assert store.track_command == f"golfray track {tmp_path} --tracking-uri https://tracker.example.org:8443/mlflow"
    assert store.artifact_location("muon") is None


def test_only_a_server_on_this_machine_may_mean_a_folder_of_this_machine(tmp_path):
    hosts = ("localhost:5000", "127.0.0.1", "[::1]:5000", "tracker.example.org")
    assert [Store.of(tmp_path, f"http://{host}").keeps_files_here for host in hosts] == [True, True, True, False]


def test_a_relative_file_is_below_the_folder_in_which_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store.of(tmp_path / "study", "sqlite:///all.db")
    assert (store.path, store.is_own) == (tmp_path / "all.db", False)
    assert store.uri == f"sqlite:///{tmp_path}/all.db"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("studies/all.db", "must be http://.* got studies/all.db; did you mean sqlite:///studies/all.db?"),
        (
            "postgresql://db.example.org/mlflow",
            "must be http://HOST:PORT, https://HOST, or sqlite:///PATH, got postgres",
        ),
        ("databricks", "must be .* got databricks"),
        ("", "must be .* got $"),
        ("http://", "names no host: http://"),
        ("http://host:port", "http://host:port is no address"),
        ("http://host/?experiment=1", "must end with the path, got http://host/.*"),
        ("file:///tmp/runs", "unless the environment has MLFLOW_ALLOW_FILE_STORE=true"),
        ("sqlite:///a?b.db", r"with a '\?' in it"),
    ],
)
def test_an_address_that_cannot_be_meant_is_one_line(tmp_path, monkeypatch, uri, message):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with pytest.raises(TrackingUriError, match=message) as caught:
        Store.of(tmp_path, uri)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:s3cret@tracker.example.org",
        "https://s3cret@tracker.example.org/mlflow",
        "http://me:s3/cret@tracker.example.org",
        "http://me:s3cret#@tracker.example.org",
        "http://tracker.example.org/?token=s3cret",
        "postgresql://me:s3cret@db.example.org/mlflow",
        "me:s3cret@tracker.example.org",
        "http://tracker.example.org:s3cret@",
    ],
)
def test_a_password_is_never_repeated(tmp_path, uri):
    with pytest.raises(TrackingUriError) as caught:
        Store.of(tmp_path, uri)
    shown, inner = str(caught.value), caught.value
    while inner is not None:
        assert not any(part in str(inner) for part in ("s3cret", "s3/", "cret@")), shown
        inner = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)


def test_a_local_store_that_works_has_nothing_to_say(tmp_path, empty_database):
    assert Store.of(tmp_path).check() is None
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    assert Store.of(tmp_path).check() is None
    assert os.listdir(tmp_path) == ["mlflow.db"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "is a file, and this is a folder; move it away"),
        (lambda path: path.write_text("no database" * 99), "file is not a database; move the file away: it is made"),
        (lambda path: path.parent.rmdir(), "cannot be written: .*: No such file or directory; mend that, or name"),
    ],
)
def test_a_local_store_that_cannot_work_is_refused(tmp_path, make, message):
    path = tmp_path / "there" / "mlflow.db"
    path.parent.mkdir()
    make(path)
    with pytest.raises(TrackingError, match=message) as caught:
        Store.of(tmp_path, f"sqlite:///{path}").check()
    assert caught.value.exit_code == 4
    assert str(path) in str(caught.value)


def test_a_locked_store_is_a_warning(study_folder, monkeypatch):
    monkeypatch.setattr("golfray.tracking.store.LOCK_SECONDS", 0.1)
    with contextlib.closing(sqlite3.connect(study_folder / "mlflow.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "is locked by another process" in Store.of(study_folder).check()
    assert Store.of(study_folder).check() is None


def test_a_server_that_does_not_answer_is_a_warning(tmp_path):
    with refusing_port() as port:
        uri = f"http://127.0.0.1:{port}"
        assert f"MLflow at {uri} does not answer (Connection refused)" in Store.of(tmp_path, uri).check()
    assert "does not answer" in Store.of(tmp_path, "http://tracker.invalid").check()


def test_a_server_that_speaks_something_else_is_a_warning(tmp_path):
    with answering(b"SSH-2.0-OpenSSH_9.6\r\n") as uri:
        said = Store.of(tmp_path, uri).check()
    assert said.startswith(f"MLflow at {uri} does not answer (what listens there does not speak HTTP); trials run")


def test_a_disk_without_room_is_refused(tmp_path, mount):
    small = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path / "small")
    message = rf"needs {FREE_BYTES:,} free bytes at least, .* has 1,0\d\d,\d\d\d; make room"
    with pytest.raises(TrackingError, match=message):
        Store.of(tmp_path, f"sqlite:///{small}/mlflow.db").check()


def test_a_read_only_disk_is_refused(tmp_path, empty_database, mount):
    disk = mount("-t", "tmpfs", "tmpfs", tmp_path / "disk")
    shutil.copy(empty_database, disk / "mlflow.db")
    mount("-o", "remount,ro", disk)
    with pytest.raises(TrackingError, match="attempt to write a readonly database; make it writable"):
        Store.of(disk).check()
    with pytest.raises(TrackingError, match=r"other.db: MLflow's store cannot be written: .*: Read-only file system"):
        Store.of(disk, f"sqlite:///{disk}/other.db").check()


def test_a_plan_looks_and_writes_nothing(tmp_path, empty_database):
    assert Store.of(tmp_path / "studies" / "muon").foresee() is None
    shutil.copy(empty_database, tmp_path / "all.db")
    before = (tmp_path / "all.db").read_bytes(), (tmp_path / "all.db").stat().st_mtime_ns
    assert Store.of(tmp_path / "study", f"sqlite:///{tmp_path}/all.db").foresee() is None
    assert ((tmp_path / "all.db").read_bytes(), (tmp_path / "all.db").stat().st_mtime_ns) == before
    assert os.listdir(tmp_path) == ["all.db"]
    with pytest.raises(TrackingError, match="missing: No such file or directory; mend that, or name another store"):
        Store.of(tmp_path / "study", f"sqlite:///{tmp_path}/missing/all.db").foresee()
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(TrackingError, match="is a file, and this is a folder; move it away"):
        Store.of(tmp_path / "study", f"sqlite:///{tmp_path}/folder.db").foresee()
    with refusing_port() as port:
        assert "does not answer" in Store.of(tmp_path, f"http://127.0.0.1:{port}").foresee()


def test_a_plan_finds_a_disk_that_is_full_or_may_only_be_read(tmp_path, mount):
    mount("-t", "tmpfs", "-o", "size=1m", "golfray-test", tmp_path)
    with pytest.raises(TrackingError, match=r"needs 4,194,304 free bytes at least, .* has 1,0\d\d,\d\d\d; make room"):
        Store.of(tmp_path / "studies" / "muon").foresee()
    mount("-o", "remount,ro", tmp_path)
    with pytest.raises(TrackingError, match=r"cannot be written: .*: it may only be read; mend that, or name another"):
        Store.of(tmp_path / "studies" / "muon").foresee()


def test_what_a_log_keeps_of_a_store_names_it_again(tmp_path):
    assert Store.of(tmp_path).recorded_uri is None
    for uri in ("https://tracker.example.org/mlflow", f"sqlite:///{tmp_path}/all.db"):
        store = Store.of(tmp_path, uri)
        assert Store.of(tmp_path, store.recorded_uri) == store


def test_it_is_looked_at_without_mlflow(tmp_path):
    program = (
        "import sys; from pathlib import Path; from golfray.tracking.store import Store; "
        "print(Store.of(Path(sys.argv[1])).check(), 'mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"
