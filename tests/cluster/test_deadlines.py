"""When a job counts as hung, limit by limit."""

import dataclasses

import pytest

from golfray.cluster.deadlines import overdue
from golfray.cluster.ledger import Entry, Ledger, Stage
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
    entry.reports_apart = 1.0
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


def training(points, stop, compile_s=None, warmup_steps=0, log_points=200):
    """A run that began to train at second 0 and reported at the seconds ``points``, as the ledger books it."""
    ledger = Ledger()
    schedule, runtime = {"warmup_steps": warmup_steps}, {"log_points": log_points}
    entry = ledger.add(Job("a", {"stop": stop, "schedule": schedule, "runtime": runtime}, "somewhere"), 0.0)
    for stage in (Stage.HANDED, Stage.READY, Stage.OFFERED):
        ledger.move(entry, stage)
    entry.lane = "lane-0"
    ledger.start(entry, -1e4)
    if compile_s is not None:
        ledger.enter(entry, "compile", -compile_s)
    ledger.enter(entry, "train", 0.0)
    for number, second in enumerate(points):
        ledger.progress(entry, {"step": float(number + 1)}, second)
    return entry


@pytest.mark.parametrize("warmup_steps", [0, 20])
def test_a_healthy_run_by_steps_that_reports_every_200_seconds_is_never_late(warmup_steps):
    """40,000 steps of one second, a report at every 200th, and the usual limit of 180 s; the first one included."""
    usual, stop, points = PhaseLimits(), {"steps": 40_000, "seconds": None}, []
    for number in range(1, 201):
        entry = training(points, stop, compile_s=60.0, warmup_steps=warmup_steps)
        points.append(200.0 * number)
        assert overdue(entry, usual, points[-1] - 0.1) is None
    late = overdue(training(points, stop), usual, points[-1] + 600.1)
    assert late.describe() == (
        "hung in train: no report for 600 s (limit progress is 180 s, but its reports came up to 200 s apart)"
    )
    assert late.error == "phase limit: train"


def test_a_run_whose_single_steps_are_longer_than_the_limit_is_never_late():
    """By the clock, two hours in steps of 250 s, each of which is reported."""
    usual, points = PhaseLimits(), []
    for number in range(1, 29):
        entry = training(points, {"steps": None, "seconds": 7200.0}, compile_s=510.0, warmup_steps=2)
        points.append(250.0 * number)
        assert overdue(entry, usual, points[-1] - 0.1) is None


def test_a_run_that_slows_down_is_given_three_times_its_longest_silence():
    entry = training([100.0, 300.0, 400.0], {"steps": 1000, "seconds": None})
    assert overdue(entry, PhaseLimits(), 1000.0) is None
    assert overdue(entry, PhaseLimits(), 1000.1).seconds == 600.0


def test_before_the_first_report_the_warm_up_says_how_long_steps_may_take():
    # 20 steps in 60 s: at most 3 s each, so 200 of them 600 s.
    late = overdue(training([], {"steps": 40_000, "seconds": None}, 60.0, 20), PhaseLimits(), 1800.1)
    assert late.seconds == 1800.0
    assert late.describe().endswith("but by its warm-up its reports are up to 600 s apart)")
    # A run of ten minutes reports every 3 s: the usual limit.
    late = overdue(training([], {"steps": None, "seconds": 600.0}, 60.0, 20), PhaseLimits(), 180.1)
    assert late.describe() == "hung in train: no report for 180 s (limit progress)"
    # 6,000 s in 20 reports: one every 300 s.
    late = overdue(training([], {"steps": None, "seconds": 6000.0}, 60.0, 20, log_points=20), PhaseLimits(), 900.1)
    assert late.seconds == 900.0


def test_without_a_warm_up_the_first_report_may_take_ten_times_the_limit():
    entry = training([], {"steps": 40_000, "seconds": None}, 60.0, 0)
    assert overdue(entry, LIMITS, 400.0) is None
    late = overdue(entry, LIMITS, 400.1)
    assert late.describe().endswith(
        "no report for 400 s (limit progress is 40 s, but nothing had shown yet how far apart its reports are)"
    )


def test_what_is_over_is_never_late():
    entry = Entry(Job("a", {}, "somewhere"), 0.0, Stage.FINISHED)
    assert overdue(entry, LIMITS, 1e9) is None
