"""One study of one trial that loses a rank, its driver and its cluster, each while it trains, and ends all the same."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from tests.cluster.gone import wait_until_gone
from tests.marked import MARK, marked_processes

pytestmark = pytest.mark.slow

GOLFRAY = pathlib.Path(sys.executable).with_name("golfray")
PATIENCE_SECONDS = 300


class Study:
    """The command, started and resumed in one folder, and what its log says."""

    def __init__(self, root, home):
        self.root, self.folder, self.mark = root, root / "studies" / "unlucky", uuid.uuid4().hex
        self.environment = {**os.environ, "HOME": str(home), MARK: self.mark, "PYTHONWARNINGS": "ignore"}

    def start(self, *arguments):
        self.process = subprocess.Popen(
            [GOLFRAY, "tune", *arguments],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self):
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out, err

    def events(self, name):
        log = self.folder / "events.jsonl"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == name]

    def wait_until_it_trains(self, attempt):
        for _ in range(PATIENCE_SECONDS * 5):
            if any(event["attempt"] == attempt for event in self.events("progress")):
                return
            assert self.process.poll() is None, self.end()
            time.sleep(0.2)
        raise AssertionError(f"attempt {attempt} never came to train")

    def processes(self, name):
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in below if process.name().startswith(name)]

    def left(self):
        return marked_processes(self.mark)


@pytest.fixture
def study(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    study = Study(tmp_path, home)
    yield study
    if study.process.poll() is None:
        study.process.terminate()
        study.process.communicate(timeout=PATIENCE_SECONDS)


def test_an_unlucky_study(study, tiny_corpus):
    space = {
        "name": "unlucky",
        "preset": "parameter-golf",
        "scale": "laptop",
        "budget": {"trials": 1},
        "replicates": 1,
        "fixed": {
            "model.vocab_size": 320,
            "model.num_layers": 2,
            "model.model_dim": 64,
            "model.num_heads": 2,
            "model.num_kv_heads": 1,
            "batch.tokens": 1024,
            "batch.seq_len": 64,
            "batch.val_tokens": 4096,
            "stop.seconds": None,
            "stop.steps": 400,
            "runtime.compile": "off",
            "runtime.log_points": 400,
            "data.folder": str(tiny_corpus.folder),
        },
        "knobs": {"optimizer.matrix_lr": {"low": 0.01, "high": 0.1, "log": True}},
    }
    (study.root / "unlucky.yaml").write_text(json.dumps(space))

    study.start("unlucky.yaml")
    study.wait_until_it_trains(attempt=1)
    study.processes("ray::RayTrainWo")[0].kill()
    study.wait_until_it_trains(attempt=2)
    study.process.kill()
    assert study.end()[0] == -signal.SIGKILL
    print(f"nothing is left {wait_until_gone(study.left, []):.1f} s after the driver")

    study.start("--resume", study.folder)
    study.wait_until_it_trains(attempt=3)
    study.processes("gcs_server")[0].kill()
    code, _, err = study.end()
    assert code == 4
    (line,) = err.splitlines()
    assert line.startswith("golfray: Ray's gcs_server (process ")
    assert line.endswith(f"; `golfray tune --resume {study.folder}` goes on from the event log")
    assert study.left() == []

    study.start("--resume", study.folder)
    code, out, err = study.end()
    assert (code, err) == (0, ""), out
    assert study.left() == []

    ends = [(event["attempt"], event["outcome"]) for event in study.events("attempt_ended")]
    assert [attempt for attempt, _ in ends] == [1, 2, 3, 4]
    assert [outcome["kind"] for _, outcome in ends] == ["crashed", "preempted", "preempted", "scored"]
    assert [outcome["error"] for _, outcome in ends] == ["rank died: SIGKILL", "driver lost", "driver lost", None]
    assert "its process ended without a word, as after SIGKILL" in ends[0][1]["reason"]
    assert [event["complete"] for event in study.events("study_ended")] == [False, True]
    seeds = {(study.folder / f"trials/0000/attempt-{number}/settings.json").read_text() for number in (1, 2, 3, 4)}
    assert len(seeds) == 1, "every attempt is the same run"
