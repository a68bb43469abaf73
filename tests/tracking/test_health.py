"""What the doctor finds about MLflow's store, with MLflow itself."""

import contextlib
import shutil
import sqlite3

import pytest

from golfray.tracking.health import check
from golfray.tracking.store import STORE_NAME, Store


@pytest.fixture
def store(tmp_path, empty_database):
    """A study's own store, as MLflow made it."""
    shutil.copyfile(empty_database, tmp_path / STORE_NAME)
    return Store.of(tmp_path)


def test_a_store_with_the_tables_of_this_mlflow(store):
    before = store.path.read_bytes()
    (found,) = check(store)
    assert (found.severity, found.code) == ("ok", "mlflow")
    assert found.what == "answers, with the tables of this MLflow; 1 experiment"
    assert store.path.read_bytes() == before


def test_a_store_of_another_mlflow(store):
    with contextlib.closing(sqlite3.connect(store.path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    (found,) = check(store)
    assert found.severity == "error"
    assert "schema" in found.what
    assert found.remedy.startswith("another version of MLflow made it: ")
    assert f"mlflow db upgrade sqlite:///{store.path}" in found.remedy


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / STORE_NAME).write_text("no database")
    (found,) = check(Store.of(tmp_path))
    assert (found.severity, found.remedy) == ("error", "move the file away: it is made again from the study's log")


def test_a_store_that_is_not_there_yet_is_not_made(tmp_path):
    (found,) = check(Store.of(tmp_path / "studies" / "muon"))
    assert (found.severity, found.what) == ("ok", "is made when the study starts")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_does_not_answer(tmp_path):
    (found,) = check(Store.of(tmp_path, "http://127.0.0.1:9"))
    assert (found.severity, found.code) == ("warning", "mlflow")
    assert "does not answer" in found.what
