"""When a job counts as hung, limit by limit."""

import dataclasses

import pytest

from golfray.cluster.deadlines import overdue
from golfray.cluster.ledger import Entry, Stage
from golfray.sweep.executor import Job
from golfray.sweep.limits import PhaseLimits

LIMITS = PhaseLimits(
    start=10, data=20, compile=30, train=None, progress=40, validate=50, calibrate=55, export=60, score=70
)


def running(phase, since, last_sign=0.0, **settings):
    entry = Entry(Job("a", settings, "somewhere"), 0.0, Stage.RUNNING)
    entry.phase, entry.phase_since, entry.last_sign = phase, since, last_sign
    return entry


@pytest.mark.parametrize(
    ("phase", "limit"),
    [
        ("start", 10),
        ("data", 20),
        ("compile", 30),
        ("validate", 50),
        ("calibrate", 55),
        ("export", 60),
        ("score", 70),
    ],
)
def test_each_phase_has_its_own_limit(phase, limit):
    entry = running(phase, since=100.0)
    assert overdue(entry, LIMITS, 100.0 + limit) is None
    late = overdue(entry, LIMITS, 100.1 + limit)
    assert (late.phase, late.limit, late.seconds) == (phase, phase, limit)
    assert late.error == f"phase limit: {phase}"
    assert late.describe().endswith(f" for {limit} s (limit {phase})")


@pytest.mark.parametrize("stage", [Stage.SUBMITTED, Stage.HANDED, Stage.READY, Stage.OFFERED])
def test_a_job_may_wait_so_long_for_a_lane_that_is_free(stage):
    entry = Entry(Job("a", {}, "somewhere"), waiting_since=5.0, stage=stage)
    assert overdue(entry, LIMITS, 15.0) is None
    assert overdue(entry, LIMITS, 15.1).error == "phase limit: start"


def test_silence_in_training_counts_from_the_last_report():
    entry = running("train", since=0.0, last_sign=1000.0)
    assert overdue(entry, LIMITS, 1040.0) is None
    late = overdue(entry, LIMITS, 1040.1)
    assert late.describe() == "hung in train: no report for 40 s (limit progress)"
    assert late.error == "phase limit: train"


def test_sliding_windows_end_within_twice_their_time_and_two_minutes():
    """Their own time ends them before that, without the trial."""
    entry = running("sliding", since=0.0, stop={"seconds": 1.0}, evaluation={"sliding_seconds": 600.0})
    assert overdue(entry, LIMITS, 1320.0) is None
    late = overdue(entry, LIMITS, 1320.1)
    assert (late.phase, late.limit, late.seconds) == ("sliding", "sliding", 1320.0)
    untimed = running("sliding", since=0.0, stop={"seconds": 1.0}, evaluation={"sliding_seconds": None})
    assert overdue(untimed, LIMITS, 1e9) is None
    assert overdue(untimed, dataclasses.replace(LIMITS, sliding=5.0), 5.1).limit == "sliding"


def test_training_by_the_clock_ends_within_twice_its_time_and_two_minutes():
    entry = running("train", since=0.0, last_sign=720.0, stop={"seconds": 300.0})
    assert overdue(entry, LIMITS, 720.0) is None
    late = overdue(entry, LIMITS, 720.1)
    assert (late.limit, late.seconds) == ("train", 720.0)


def test_a_run_that_reports_seldom_may_be_silent_for_longer():
    # 6,000 s in 200 reports: one every 30 s, so 90 s are three that did not come.
    settings = {"stop": {"seconds": 6000.0}, "runtime": {"log_points": 200}}
    entry = running("train", since=0.0, last_sign=1000.0, **settings)
    assert overdue(entry, LIMITS, 1090.0) is None
    assert overdue(entry, LIMITS, 1090.1).seconds == 90.0


def test_what_is_over_is_never_late():
    entry = Entry(Job("a", {}, "somewhere"), 0.0, Stage.FINISHED)
    assert overdue(entry, LIMITS, 1e9) is None
