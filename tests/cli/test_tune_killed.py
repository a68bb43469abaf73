"""A study on real lanes whose driver is killed five times, somewhere else each time: it ends as if none had been."""

import collections
import json
import os
import signal
import time

import pytest

from golfray.sweep.events import LOG_NAME
from golfray.sweep.records import StudyRecord
from tests.cluster.gone import wait_until_gone

pytestmark = pytest.mark.slow

# Behind how many records of which kind each driver is killed, counted from its own first: different places of a study.
KILLS = [("attempt_submitted", 2), ("phase", 7), ("study_resumed", 1), ("attempt_ended", 3), ("progress", 2)]
PATIENCE_SECONDS = 300

# What a clock has a part in. All else of a run in steps mode is the same to the last bit, on any lane.
TIMED = {"train/seconds", "train/step_ms", "train/tokens_per_s"}


def events(study):
    """Kinds of the whole records of the log."""
    log = study / LOG_NAME
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line)["event"] for line in lines if line.endswith(b"\n")]


def came_of(record):
    """Parameters, seed and outcome of every trial."""
    found = collections.Counter()
    for trial in record.trials:
        outcome = trial.outcome
        metrics = {name: value for name, value in outcome.metrics.items() if name not in TIMED}
        found[json.dumps([trial.role, trial.params, trial.seed, outcome.kind, metrics, outcome.artifact_sha256])] += 1
    return found


def kill_behind(started, study, kind, count):
    """Kill the driver, and nothing else, once it has written so many records of this kind."""
    before = len(events(study))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while events(study)[before:].count(kind) < count:
        assert started.process.poll() is None, started.end()
        assert time.monotonic() < deadline, events(study)[before:]
        time.sleep(0.005)
    os.kill(started.process.pid, signal.SIGKILL)
    assert started.end().code == -signal.SIGKILL
    wait_until_gone(started.left_processes, [])


@pytest.fixture(scope="module")
def studies(golfray, write_space):
    """The folder of a study that was left alone, and that of one whose driver was killed again and again."""
    space = write_space(
        golfray.folder / "killed.yaml",
        fixed={"workers": 1, "runtime.log_points": 4},
        budget={"trials": 5},
        sampler="random",
    )
    whole, killed = golfray.folder / "whole", golfray.folder / "killed"
    assert golfray.start("tune", space, f"--study-dir={whole}").end().code == 0
    verb = [space, f"--study-dir={killed}"]
    for kind, count in KILLS:
        started = golfray.start("tune", *verb)
        kill_behind(started, killed, kind, count)
        print(f"killed behind {events(killed)[-1]}")
        verb = ["--resume", killed]
    ended = golfray.start("tune", "--resume", killed).end()
    assert (ended.code, ended.err) == (0, ""), ended
    return whole, killed


def test_parameters_seeds_and_outcomes_are_those_of_the_whole_study(studies):
    whole, killed = map(StudyRecord.load, studies)
    assert came_of(killed) == came_of(whole)
    assert (whole.complete, killed.complete) == (True, True)
    assert (whole.generation, killed.generation) == (1, len(KILLS) + 1)
    assert whole.header["holding"]["nodes"] == 1
    lost = [attempt.outcome.reason for trial in killed.trials for attempt in trial.attempts if not attempt.final]
    assert lost, "no kill met an attempt"
    assert set(lost) == {"driver lost"}


def test_two_of_its_trials_side_by_side(studies, golfray):
    _, killed = studies
    record = StudyRecord.load(killed)
    first, second = record.trials[0], record.trials[-1]
    differing = {name for name, value in second.params.items() if value != first.setting(name)}
    assert "optimizer.matrix_lr" in differing
    sides = [f"{killed}/{second.number}", f"{killed}/{first.number}"]
    ended = golfray.run("compare", *sides, "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    assert (document["identical"], set(document["settings"])) == (False, differing)
    for name, value in second.outcome.metrics.items():
        assert document["metrics"][name] == {"first": value, "second": first.outcome.metrics[name]}
    assert document["environment"]["workers"] == {"first": 1, "second": 1}
    # The same for a person.
    rows = [line.split() for line in golfray.run("compare", *sides).out.splitlines()]
    named = {row[0] for row in rows[1 : 1 + len(differing)]}
    assert (rows[0][0], named) == ("setting", differing)
    total = [f"{trial.bytes_total:,.0f}" for trial in (second, first)]
    assert ["bytes/total", *total] in [row[:3] for row in rows]


def test_one_trial_with_itself_is_identical(studies, golfray):
    trial = f"{studies[0]}/0"
    (line, *_) = golfray.run("compare", trial, trial).out.splitlines()
    assert line.endswith("are identical in every resolved setting but the seed")
