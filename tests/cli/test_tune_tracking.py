"""A study that is tracked on a real ``mlflow server`` which dies while trials run, and is completed afterwards."""

import json
import signal

import pytest

from tests.tracking.stores import MlflowServer, store_content

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path):
    server = MlflowServer(tmp_path)
    server.start()
    yield server
    server.close()


def test_a_server_that_is_killed_under_a_study(golfray, write_space, wait, server, tmp_path):
    # Trials of some seconds: two of them are still to come when the server dies.
    long = {"stop.steps": 400, "runtime.log_points": 50}
    write_space(golfray.folder / "tracked.yaml", fixed=long, budget={"trials": 3}, replicates=1)
    study = golfray.folder / "studies" / "tracked"
    log = study / "events.jsonl"
    started = golfray.start("tune", "tracked.yaml", f"--tracking-uri={server.uri}")
    # MLflow is imported while the first one runs; before that there is nobody to miss the server.
    wait(lambda: store_content(server.uri), 300)
    wait(lambda: '"attempt_ended"' in log.read_text(encoding="utf-8"), 300)
    server.signal(signal.SIGKILL)
    assert '"study_ended"' not in log.read_text(encoding="utf-8"), "it ended before the server did"
    ended = started.end()
    assert (ended.code, ended.err) == (0, ""), ended
    assert started.left_processes() == []
    lines = ended.out.splitlines()
    # What comes before the reason depends on what it was asked when it died: runs, or to take a file.
    said = [line for line in lines if line.startswith(f"MLflow at {server.uri}")]
    assert len(said) == 1, ended.out
    assert said[0].endswith("trials go on, and what MLflow lacks is written when it works again")
    behind = [line for line in lines if line.startswith("MLflow is behind, at record ")]
    assert len(behind) == 1, ended.out
    command = f"golfray track {study} --tracking-uri {server.uri}"
    assert behind[0].endswith(f"complete it with: {command}")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    kinds = [event["outcome"]["kind"] for event in events if event["event"] == "attempt_ended"]
    assert len(kinds) == 3
    assert set(kinds) <= {"scored", "infeasible"}

    server.start()
    completed = golfray.run(*command.split()[1:])
    assert (completed.code, completed.err) == (0, ""), completed
    elsewhere = f"sqlite:///{tmp_path / 'undisturbed.db'}"
    assert golfray.run("track", study, f"--tracking-uri={elsewhere}").code == 0
    content = store_content(server.uri)
    assert len(content) == 4, "the study and its trials"
    assert content == store_content(elsewhere)
