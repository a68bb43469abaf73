"""Where MLflow is: kept for whoever resumes or tracks a study, looked at in a dry run, and never with a password."""

import json

import pytest

from golfray.cli.output import Output
from golfray.cli.prepare import on_its_corpus, prepare, read_space
from golfray.tracking.store import Store
from tests.cli.begun import begin_study
from tests.ports import refusing_port


@pytest.fixture
def resumed(write_space, tmp_path):
    """Prepares to resume a study that was tracked at an address, and returns the store that it goes on with."""
    space, corpus = on_its_corpus(read_space(write_space(tmp_path / "small.yaml"), []))

    def prepared(tracking_uri, named):
        folder = begin_study(tmp_path / "study", space, corpus, tracking_uri=tracking_uri)
        store = None if named is None else Store.of(folder, named)
        return prepare(None, folder, store, sets=[], allow=False, output=Output()).store

    return prepared


@pytest.mark.parametrize(
    ("before", "named", "goes_on_at"),
    [
        ("http://127.0.0.1:1", None, "http://127.0.0.1:1"),
        (None, None, None),
        ("http://127.0.0.1:1", "http://127.0.0.1:2/mlflow/", "http://127.0.0.1:2/mlflow"),
        (None, "http://127.0.0.1:1", "http://127.0.0.1:1"),
    ],
)
def test_a_study_goes_on_where_it_was_tracked_and_says_where(resumed, capsys, before, named, goes_on_at):
    store = resumed(before, named)
    assert store.recorded_uri == goes_on_at
    assert f"MLflow: {store.name}" in capsys.readouterr().out.splitlines()


@pytest.mark.slow  # a whole plan
def test_a_dry_run_asks_a_server(golfray, write_space):
    space = write_space(golfray.folder / "small.yaml")
    with refusing_port() as port:
        away = f"http://127.0.0.1:{port}"
        ended = golfray.run("tune", space, "--dry-run", "--json", "--tracking-uri", away)
    assert ended.code == 0
    assert json.loads(ended.out)["store"] == away
    lines = ended.err.splitlines()
    warning = f"  MLflow at {away} does not answer (Connection refused); trials run without it"
    assert lines[lines.index(f"MLflow: {away}") + 1].startswith(warning)


def test_a_dry_run_looks_at_the_address(golfray, write_space):
    space = write_space(golfray.folder / "small.yaml")
    ends = golfray.run_all(
        {
            "wrong": ["tune", space, "--dry-run", "--tracking-uri", "http://me:s3cret@tracker.example.org"],
            "no folder": ["tune", space, "--dry-run", "--tracking-uri", "sqlite:///missing/runs.db"],
        }
    )
    assert ends["wrong"].code == 2
    assert "MLFLOW_TRACKING_PASSWORD" in ends["wrong"].one_line()
    assert "s3cret" not in ends["wrong"].out + ends["wrong"].err
    assert ends["no folder"].code == 4
    assert "missing: No such file or directory; mend that, or name another store" in ends["no folder"].one_line()
    assert not (golfray.folder / "studies").exists()
