"""Forecasts of time and cost: where the answer is known, how they spread, and what cuts a study off."""

import math
import statistics

import pytest

from golfray.sweep.budget import CLOSE_S, Allowance, Booked, Price, StudyBudget, booked
from golfray.sweep.executor import Holding
from golfray.sweep.forecast import Ahead, forecast, start_seconds, trial_seconds
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.retry import DRIVER_LOST
from golfray.sweep.sim.luck import step_factors
from tests.report.scripted import Script

NODE = Holding(2, 16)
NOTHING = Booked(0.0, 0.0, None)


def ahead(seconds, price=None, spent=NOTHING, **fields):
    return forecast(seconds, Ahead(**{"trials": 6, "running": (), "slots": 1, **fields}), NODE, price, spent)


def test_trials_that_all_take_as_long_leave_no_doubt():
    found = ahead([100.0], slots=2, ready_s=30.0)
    assert (found.p50_s, found.p90_s, found.known) == (330.0, 330.0, 1)
    assert ahead([100.0], trials=0).p90_s == 0
    # One runs for 40 of its 100 s; the other lane is free at once.
    assert ahead([100.0], trials=3, slots=2, running=(40.0,)).p50_s == 200
    # Longer than any before it: over at any moment.
    assert ahead([100.0], trials=1, slots=1, running=(140.0,)).p50_s == 100


def test_half_are_above_the_median_and_one_in_ten_above_the_ninetieth():
    # The sum of 100 draws of 0 or 2: mean 100, SD 10.
    found = ahead([0.0, 2.0], trials=100)
    assert found.p50_s == pytest.approx(100, abs=3)
    assert found.p90_s == pytest.approx(100 + 1.2816 * 10, abs=4)
    assert ahead([0.0, 2.0], trials=100) == found


def test_limits_cut_it_off():
    assert ahead([100.0], trials=math.inf, ask_s=250.0).p50_s == 300
    assert ahead([100.0], trials=math.inf, start_s=201.0, ask_s=250.0).p50_s == 300
    assert ahead([100.0], trials=math.inf, start_s=200.0, ask_s=250.0).p50_s == 200
    assert ahead([100.0], trials=math.inf) is None
    assert ahead([], trials=4) is None


def test_what_it_costs_is_what_is_booked_and_the_nodes_until_then():
    found = ahead([1800.0], Price(3.0, "x"), Booked(100.0, 0.0, 0.5), trials=2)
    assert (found.p50_usd, found.p90_usd) == (0.5 + 2 * 3.0, 0.5 + 2 * 3.0)
    assert ahead([1800.0], None, Booked(100.0, 0.0, 0.5)).p50_usd is None
    # What was spent before without a price is not known, so neither is the sum.
    assert ahead([1800.0], Price(3.0, "x"), Booked(100.0, 0.0, None)).p50_usd is None


def test_until_when_a_trial_may_start():
    allowed = Allowance(until=1000.0, search_until=900.0, limits=PhaseLimits(), cap="5 USD")
    assert start_seconds(allowed, 300.0, 500.0) == 100
    assert start_seconds(allowed, 300.0, 700.0) == 0
    assert start_seconds(Allowance(math.inf, math.inf, PhaseLimits(), ""), 300.0, 500.0) == math.inf


def test_a_trials_lost_attempts_are_its_own_and_the_time_without_a_driver_is_nobodys():
    script = Script()
    script.start()
    first = script.ask("preset")
    for attempt, final in ((1, False), (2, True)):
        script.add("attempt_submitted", **where(first, attempt), folder=f"a{attempt}")
        script.add("attempt_started", 1.0, **where(first, attempt), lane="lane-0")
        kind = Kind.SCORED if final else Kind.CRASHED
        script.add("attempt_ended", 9.0, **where(first, attempt), outcome=Outcome(kind, "").to_dict(), final=final)
    second = script.ask()
    script.add("attempt_submitted", **where(second, 1), folder="b1")
    script.add("attempt_started", 1.0, **where(second, 1), lane="lane-0")
    script.resume(2, [], after=5000.0)
    lost = Outcome(Kind.PREEMPTED, DRIVER_LOST, error=DRIVER_LOST)
    script.add("attempt_ended", **where(second, 1), outcome=lost.to_dict(), final=False)
    script.add("attempt_submitted", **where(second, 2), folder="b2")
    assert trial_seconds(StudyRecord.from_events(script)) == [20.0]
    script.add("attempt_ended", 30.0, **where(second, 2), outcome=Outcome(Kind.SCORED, "").to_dict(), final=True)
    assert trial_seconds(StudyRecord.from_events(script)) == [20.0, 31.0]
    # Two drivers, neither of which had anything before its first record: 21 s and 30 s.
    assert booked(StudyRecord.from_events(script)).node_s == pytest.approx(21 + 30 + 2 * CLOSE_S, abs=0.5)
    assert booked(StudyRecord.from_events(script), script.now + 7).node_s == pytest.approx(
        21 + 37 + 2 * CLOSE_S, abs=0.5
    )
    assert StudyBudget(trials=3).words() == ["3 trials"]


def where(trial: int, attempt: int) -> dict:
    return {"trial": trial, "attempt": attempt, "job_id": f"muon-{trial:04d}-{attempt}"}


def test_the_laws_step_times_differ_by_little_and_on_some_nodes_by_more():
    factors = step_factors(2000)
    assert statistics.median(factors) == pytest.approx(1.0, abs=0.001)
    slow = sum(factor > 1.004 for factor in factors) / len(factors)
    assert 0.04 < slow < 0.12
    assert min(factors) > 0.99
