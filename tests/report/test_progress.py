"""Where trials are and how long the study may still take, in numbers that can be counted by hand."""

import pytest

from golfray.report.progress import (
    Position,
    ended_trials,
    planned_trials,
    position_of,
    running_trials,
    seconds_a_trial,
    study_seconds_left,
)
from golfray.sweep.records import StudyRecord
from tests.report.scripted import Script, eventful_study, ran


def studied(script):
    return StudyRecord.from_events(script)


def test_positions_from_submission_to_the_end():
    script = Script()
    script.start()
    trial = script.ask("preset")
    script.add("attempt_submitted", trial=trial, attempt=1, job_id="a", folder="trials/0000/attempt-1")
    at = script.now
    waiting = position_of(studied(script).trials[0])
    script.add("attempt_started", 2.0, trial=trial, attempt=1, job_id="a", lane="lane-0")
    starting = position_of(studied(script).trials[0])
    script.phase(trial, "train", 3.0)
    training = position_of(studied(script).trials[0])
    script.point(trial, 60, 3.75, 5.0)
    pointed = position_of(studied(script).trials[0])
    script.end(trial, ran(1.8, 300_000))
    assert waiting == Position("waiting", at, None, {}, None)
    assert starting == Position("starting", at + 2, None, {}, None)
    assert training == Position("train", at + 5, None, {}, None)
    assert (pointed.step, pointed.share, pointed.loss) == (60, 0.25, 5.0)
    assert position_of(studied(script).trials[0]) is None


@pytest.mark.parametrize(
    ("stop", "step", "elapsed", "share"),
    [
        ({"steps": 100, "seconds": None}, 25, 9.0, 0.25),
        ({"steps": 100, "seconds": 10.0}, 25, 9.0, 0.9),
        ({"steps": 100, "seconds": 10.0}, 120, 9.0, 1.0),
    ],
)
def test_the_share_is_that_of_the_limit_that_comes_first(stop, step, elapsed, share):
    script = Script()
    script.start()
    trial = script.ask("preset")
    script.events[-1]["settings"]["stop"] = stop
    script.submit(trial)
    script.point(trial, step, elapsed, 5.0)
    assert position_of(studied(script).trials[0]).share == pytest.approx(share)


def test_a_point_is_one_of_training_where_no_phase_was_announced():
    script = Script()
    script.start()
    trial = script.ask("preset")
    script.submit(trial)
    assert position_of(studied(script).trials[0]).phase == "starting"
    script.point(trial, 60, 3.75, 5.0)
    assert position_of(studied(script).trials[0]).phase == "train"


def test_counts_of_a_study_with_a_retry_a_refusal_and_a_drain():
    record = studied(eventful_study())
    # Six in the budget as it is now, and two replicates.
    assert (ended_trials(record), planned_trials(record), running_trials(record)) == (6, 8, [])


def test_a_trial_that_waits_to_run_again_has_not_ended():
    script = eventful_study()
    cut = next(index for index, event in enumerate(script) if event.get("final") is False)
    record = StudyRecord.from_events(script.events[: cut + 1])
    assert (ended_trials(record), running_trials(record)) == (1, [])


def two_lanes(trials=8, minutes=None):
    """One trial took 20 s; of two that run, one began 5 s ago and one just now."""
    script = Script()
    script.start(trials=trials, minutes=minutes, slots=2)
    first, second = script.ask("preset"), script.ask()
    script.add("attempt_submitted", trial=first, attempt=1, job_id="a", folder="a")
    script.add("attempt_started", trial=first, attempt=1, job_id="a", lane="lane-0")
    script.add("attempt_submitted", 15.0, trial=second, attempt=1, job_id="b", folder="b")
    script.add("attempt_started", trial=second, attempt=1, job_id="b", lane="lane-1")
    script.end(first, ran(1.8, 300_000), after=5.0)
    third = script.ask()
    script.add("attempt_submitted", trial=third, attempt=1, job_id="c", folder="c")
    script.add("attempt_started", trial=third, attempt=1, job_id="c", lane="lane-0")
    return studied(script)


def test_the_estimate_is_the_work_ahead_over_the_lanes():
    record = two_lanes()
    now = record.last_event
    assert seconds_a_trial(record) == 20.0
    # Ten in all: one ended, two run with 15.1 and 20 s to go, seven to come of 20 s each; two at once.
    assert study_seconds_left(record, now) == pytest.approx((7 * 20 + 20 + 14.9) / 2, abs=0.11)
    # Ten seconds later as much less.
    assert study_seconds_left(record, now + 10) == pytest.approx((7 * 20 + 10 + 4.9) / 2, abs=0.11)


def test_minutes_end_it_where_they_are_over_first():
    record = two_lanes(trials=None, minutes=1.0)
    # 20.2 of 60 s are spent; what is started at the last moment takes 20 s.
    assert study_seconds_left(record, record.last_event) == pytest.approx(60 - record.driven_seconds + 20)
    # They are over: only what runs is waited for, which has been late for long.
    assert study_seconds_left(record, record.last_event + 120) == 0.0
    both = two_lanes(trials=8, minutes=1.0)
    assert study_seconds_left(both, both.last_event) == study_seconds_left(record, record.last_event)


def test_nothing_is_guessed_before_a_trial_has_run_to_its_end():
    script = Script()
    script.start()
    script.submit(script.ask("preset"))
    assert study_seconds_left(studied(script), script.now) is None
