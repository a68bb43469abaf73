"""A cluster that is not the study's own, of two nodes: one that is lost, and nothing held once the study has ended.

Nor is a node held: once the study is done or the head has died, the timers shut the nodes down.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import psutil
import pytest

from golfray.cluster.far_resources import far_resources
from tests.cli.conftest import PROGRAM
from tests.cli.documented import read_tables
from tests.cluster.gone import wait_until_gone
from tests.cluster.node_timers import Timer

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent


def start(script, *arguments, errors=subprocess.DEVNULL, **environment):
    paths = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    return subprocess.Popen(
        [sys.executable, HERE / script, *arguments],
        env={**os.environ, "PYTHONPATH": paths, "RAY_AUTH_MODE": "token", "PYTHONWARNINGS": "ignore", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


class Cluster:
    """The process of foreign_cluster.py."""

    def __init__(self, folder):
        self.timers = [Timer(folder / f"timer-{name}") for name in ("head", "second")]
        self.environment = {"RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        with (folder / "errors").open("w") as errors:
            self.process = start("foreign_cluster.py", folder, errors=errors, **self.environment)
        self.address = self.process.stdout.readline().strip()
        assert self.address, f"the cluster did not come up: {(folder / 'errors').read_text()[-2000:]}"

    def ask(self, what):
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def wait_until_nothing_is_held(self):
        took = wait_until_gone(lambda: json.loads(self.ask("held")), {"groups": 0, "actors": []})
        print(f"nothing held after {took:.1f} s")

    def study(self, folder):
        (folder / "shards").mkdir()
        for name in ("shards/fineweb_train_000000.bin", "shards/fineweb_val_000000.bin", "tokenizer.model"):
            (folder / name).write_bytes(b"x")
        with (folder / "errors").open("w") as errors:
            return start("foreign_driver.py", folder, self.address, errors=errors, **self.environment)


@pytest.fixture(scope="module")
def cluster():
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="foreign-", dir="/tmp") as folder:
        cluster = Cluster(pathlib.Path(folder))
        yield cluster
        cluster.process.communicate()
        for timer in cluster.timers:
            timer.end()


def test_what_it_offers_can_be_asked_for_without_a_study(cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", cluster.environment["RAY_AUTH_TOKEN_PATH"])
    assert far_resources(cluster.address)["CPU"] == 2.0


def test_the_doctor_asks_every_node(cluster, tmp_path, tiny_corpus):
    sets = [f"--set=data.folder={tiny_corpus.folder}", "--set=model.vocab_size=320", "--set=batch.seq_len=64"]
    command = [sys.executable, "-c", PROGRAM, "doctor", "--json", "-q", *sets, "--address"]
    environment = {**os.environ, **cluster.environment, "PYTHONPATH": str(HERE.parents[1])}
    ended = subprocess.run([*command, cluster.address], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended
    document = json.loads(ended.stdout)
    assert read_tables().mistakes(document) == []
    ok = [finding for finding in document["findings"] if finding["severity"] == "ok"]
    for code, what in {
        "clock": "its clock is ",
        "study-folder": f"shares {tmp_path} with the driver",
        "data": "has the driver's 4 files of data, by size and sha256",
    }.items():
        found = [finding["what"] for finding in ok if finding["code"] == code and finding["where"].startswith("node ")]
        assert len(found) == 2, code
        assert all(said.startswith(what) for said in found)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_node_is_no_crash_and_the_lane_comes_back(cluster, tmp_path):
    for timer in cluster.timers:
        timer.arm(boot=60, silent=50, done=40)
    study = cluster.study(tmp_path)
    checked = json.loads(study.stdout.readline())["problem"].splitlines()
    assert checked[0] == "not every node is ready:"
    assert [line.split(": ")[1] for line in checked[1:]] == ["/proc/no/study cannot be written to"] * 2
    assert study.stdout.readline() == "training\n"
    assert json.loads(cluster.ask("held"))["groups"] > 0
    assert cluster.ask("lose") == "lost"
    job, kind, reason = json.loads(study.stdout.readline())
    assert (job, kind) == ("first", "preempted")
    assert "preempted: its node has left the cluster" in reason
    assert cluster.ask("gain") == "gained"
    assert json.loads(study.stdout.readline())[:2] == ["second", "scored"]
    assert study.stdout.readline() == "closed\n"
    study.communicate()
    assert study.returncode == 0
    assert [timer.lease["why"] for timer in cluster.timers] == ["the study is done"] * 2
    cluster.wait_until_nothing_is_held()


def test_a_killed_driver_leaves_nothing_held(cluster, tmp_path):
    study = cluster.study(tmp_path)
    study.stdout.readline()
    assert study.stdout.readline() == "training\n"
    study.kill()
    study.communicate()
    cluster.wait_until_nothing_is_held()


def test_a_cluster_that_ends_under_a_study(cluster, tmp_path):
    """The last test of this module: there is no cluster after it."""
    for timer in cluster.timers:
        timer.arm(boot=60, silent=0.2, done=60)
    study = cluster.study(tmp_path)
    study.stdout.readline()
    assert study.stdout.readline() == "training\n"
    for timer in cluster.timers:
        timer.wait_for("no study has given a sign")
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    (gcs,) = [child for child in children if child.name() == "gcs_server"]
    gcs.kill()
    said = json.loads(study.stdout.readline())["problem"]
    assert said.startswith(f"the Ray cluster at {cluster.address} does not answer any more: ")
    study.communicate()
    assert study.returncode == 4
    # Nobody is left to renew them, on the head or on the other node.
    for timer in cluster.timers:
        assert timer.wait_until_off() == "shutdown -P now"
        assert "no study has given a sign: shutdown -P now" in timer.log
    cluster.process.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
