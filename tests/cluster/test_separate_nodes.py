"""A study on nodes that only a network connects: one is cut off for 20 s, one loses its power, another one comes.

What the log says of it is held against what was done to the nodes. How fast the machine is decides how many trials
there are, and nothing else: the study is interrupted when all has been seen.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from golfray.sweep.budget import CLOSE_S, booked
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from tests.cli.conftest import TINY
from tests.conftest import cannot_run, plain_environment

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
NAMESPACES = ["unshare", "--pid", "--mount", "--net", "--fork", "--mount-proc", "--kill-child"]
PROGRAMS = ("unshare", "ip", "hostname")

USD_PER_HOUR = 3.6
LIMITS = ("start", "data", "compile", "train", "validate", "export", "score")
CUT_SECONDS = 20.0
FIRST, SECOND, THIRD = "192.0.2.2", "192.0.2.3", "192.0.2.4"

# The driver asks Ray for its nodes every 2 s; the rest is for a machine that is short of CPU.
LATE_SECONDS = 30.0
# Ray gives up a node of which it hears nothing after 65 s, and then the driver must hear of it.
GIVEN_UP_SECONDS = 65.0 + LATE_SECONDS
PATIENCE_SECONDS = 420.0


class Machines:
    """The process of separate_nodes.py, and the log of the study there."""

    def __init__(self, folder):
        self.study = folder / "studies" / "nodes"
        command = [*NAMESPACES, sys.executable, HERE / "separate_nodes.py", ROOT, folder]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=plain_environment(), stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout.readline() == "true\n", "the head did not come up"

    def ask(self, *words):
        """The answer, and the moment when it came."""
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"{words}: no answer"
        return json.loads(answer), time.time()

    def trials(self):
        return StudyRecord.load(self.study).trials if (self.study / "events.jsonl").exists() else []

    def attempts(self, address):
        return [attempt for trial in self.trials() for attempt in trial.attempts if address in addresses(attempt)]

    def training(self, address):
        """The attempt that trains on that node, once it has reported; None where there is none."""
        return next((a for a in self.attempts(address) if a.outcome is None and a.curve), None)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def addresses(attempt):
    return {node.address for node in attempt.nodes}


def wait_for(find):
    """What ``find`` returns as soon as it is something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := find()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.3)
    return found


@dataclasses.dataclass
class Story:
    """What was done and when, in unix seconds, and the study that came of it."""

    cut_job: str
    mended: float
    lost_job: str
    off: float
    adding: float
    added: float
    code: int
    record: StudyRecord
    events: list[dict]
    folder: pathlib.Path

    def attempt(self, job):
        """The trial and the attempt of a job."""
        return next((trial, a) for trial in self.record.trials for a in trial.attempts if a.job_id == job)


def space(corpus):
    # By the clock, so that whatever the machine there is time to find a trial and pull its node's cable.
    stop = {"stop.seconds": 8.0, "stop.steps": 1_000_000}
    fixed = {**TINY, **stop, "data.folder": str(corpus), "cap_bytes": 1_000_000}
    return {
        "name": "nodes",
        "preset": "parameter-golf",
        "scale": "laptop",
        "workers": 1,
        "budget": {"trials": 300, "usd": 30},
        "seed": 3,
        "sampler": "random",
        "replicates": 1,
        "fixed": fixed,
        "knobs": {"optimizer.matrix_lr": {"low": 0.01, "high": 0.1, "log": True}},
        # All of an attempt must fit into what is left of the budget.
        "limits": dict.fromkeys(LIMITS, 300),
    }


def play(machines):
    machines.ask("add", "first", "2")
    machines.ask("add", "second", "3")
    machines.ask("tune", "nodes.yaml", "--usd-per-hour", str(USD_PER_HOUR))

    wait_for(lambda: machines.training(SECOND))
    cut = wait_for(lambda: machines.training(FIRST))
    machines.ask("cut", "first")
    time.sleep(CUT_SECONDS)
    _, mended = machines.ask("mend", "first")
    # It trains again, be it the same attempt or another one.
    wait_for(lambda: [a for a in machines.attempts(FIRST) if a.outcome and a.ended > mended])

    lost = wait_for(lambda: machines.training(SECOND))
    _, off = machines.ask("off", "second")
    adding = time.time()
    _, added = machines.ask("add", "third", "4")
    wait_for(lambda: machines.training(THIRD))
    number = next(t.number for t in machines.trials() for a in t.attempts if a.job_id == lost.job_id)
    wait_for(lambda: machines.trials()[number].outcome)

    machines.ask("interrupt")
    code, _ = machines.ask("wait")
    return Story(
        cut.job_id,
        mended,
        lost.job_id,
        off,
        adding,
        added,
        code,
        record=StudyRecord.load(machines.study),
        events=[json.loads(line) for line in (machines.study / "events.jsonl").read_text().splitlines()],
        folder=machines.study,
    )


@pytest.fixture(scope="module")
def story(tmp_path_factory, tiny_corpus):
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        cannot_run("namespaces take root")
    if lacking:
        cannot_run(f"not installed here: {', '.join(lacking)}")
    bridge = [*NAMESPACES, "ip", "link", "add", "switch", "type", "bridge"]
    tried = subprocess.run(bridge, capture_output=True, text=True)
    if tried.returncode != 0:
        cannot_run(f"this machine makes no namespaces with a network of their own: {tried.stderr.strip()}")
    folder = tmp_path_factory.mktemp("separate")
    shutil.copytree(tiny_corpus.folder, folder / "corpus")
    (folder / "nodes.yaml").write_text(json.dumps(space(folder / "corpus")))
    machines = Machines(folder)
    try:
        yield play(machines)
    finally:
        if (folder / "said").exists():
            print((folder / "said").read_text())
        machines.end()


def test_every_trial_has_one_answer_and_it_is_on_the_disk(story):
    assert story.code == 130
    assert story.record.trials
    for trial in story.record.trials:
        kinds = [attempt.outcome.kind for attempt in trial.attempts]
        assert kinds == [Kind.PREEMPTED] * (len(kinds) - 1) + [Kind.SCORED], f"trial {trial.number}"
        answer = trial.attempts[-1]
        artifact = (story.folder / answer.folder / answer.outcome.artifact).read_bytes()
        assert hashlib.sha256(artifact).hexdigest() == answer.outcome.artifact_sha256


def test_no_attempt_ends_twice_and_no_two_of_a_trial_overlap(story):
    ended = [event["job_id"] for event in story.events if event["event"] == "attempt_ended"]
    submitted = [event["job_id"] for event in story.events if event["event"] == "attempt_submitted"]
    assert sorted(ended) == sorted(submitted)
    assert len(set(ended)) == len(ended)
    for trial in story.record.trials:
        for attempt, following in zip(trial.attempts, trial.attempts[1:], strict=False):
            assert attempt.ended <= following.submitted
        for attempt in trial.attempts:
            steps = [step for step, _ in attempt.curve]
            assert steps == sorted(set(steps)), "no report is counted twice"


def test_a_lane_lies_on_one_node_and_the_head_has_none(story):
    places = [addresses(attempt) for trial in story.record.trials for attempt in trial.attempts if attempt.started]
    assert {len(place) for place in places} == {1}
    assert set.union(*places) == {FIRST, SECOND, THIRD}


def test_the_trial_on_the_node_that_was_cut_off_outlives_the_cut(story):
    _, attempt = story.attempt(story.cut_job)
    assert attempt.outcome.kind is Kind.SCORED, attempt.outcome.reason
    assert attempt.ended > story.mended
    assert addresses(attempt) == {FIRST}


def test_the_trial_on_the_node_that_lost_its_power_runs_again_elsewhere(story):
    trial, attempt = story.attempt(story.lost_job)
    assert attempt.outcome.kind is Kind.PREEMPTED
    assert (attempt.outcome.reason, attempt.outcome.error) == (
        "rank 0 preempted: its node has left the cluster",
        "node lost",
    )
    assert addresses(trial.attempts[-1]) < {FIRST, THIRD}
    late = [a for t in story.record.trials for a in t.attempts if SECOND in addresses(a) and a.started > story.off]
    assert late == []


def test_nothing_but_the_lost_node_ended_an_attempt(story):
    lost = [a for t in story.record.trials for a in t.attempts if a.outcome.kind is not Kind.SCORED]
    assert [a.job_id for a in lost] == [story.lost_job]


def test_the_log_follows_the_nodes_and_books_what_they_cost(story):
    changes = [event for event in story.events if event["event"] == "lanes_changed"]
    started, ended = story.events[0], story.record.generations[-1].last_event
    assert started["holding"]["nodes"] == 3
    held = [started["holding"]["nodes"], *(event["holding"]["nodes"] for event in changes)]
    sequence = [nodes for nodes, before in zip(held, [None, *held], strict=False) if nodes != before]
    assert sequence in ([3, 4, 3], [3, 2, 3]), "the third may be there before Ray has heard of the second"
    assert changes[-1]["slots"] == 2
    words = [line for event in changes for line in event["news"]]
    assert f"the cluster holds {'3 lanes' if max(held) == 4 else '1 lane'} now, 2 before" in words

    moments = [started["held_since"], *(event["time"] for event in changes), ended + CLOSE_S]
    node_s = sum(n * (until - since) for n, since, until in zip(held, moments[:-1], moments[1:], strict=True))
    cost = booked(story.record)
    assert cost.node_s == pytest.approx(node_s)
    assert cost.usd == pytest.approx(node_s / 3600 * USD_PER_HOUR)

    # The head, the first, and of the others what was there in truth.
    end = ended + CLOSE_S
    true_s = 2 * (end - moments[0]) + (story.off - moments[0]) + (end - story.added)
    early = story.added - story.adding
    assert true_s - LATE_SECONDS <= node_s <= true_s + early + GIVEN_UP_SECONDS
    assert end - story.off > early + GIVEN_UP_SECONDS, "a study that never heard of it would have booked more"
