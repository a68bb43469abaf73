"""Where lane time went: every second of a lane is in one part, and the parts are the right ones."""

import pytest

from golfray.sweep.budget import booked
from golfray.sweep.lane_time import attempt_seconds, lane_time
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from tests.report.scripted import Script, failed, ran


def test_every_second_of_two_lanes_is_in_one_part():
    script = Script()
    script.start(slots=2)  # at 0 s
    first, second = script.ask(), script.ask()  # at 0.1 and 0.2 s
    script.submit(first, lane="lane-0")  # taken at 0.7 s
    script.submit(second, lane="lane-1")  # taken at 1.2 s
    script.end(first, ran(1.8, 300_000), after=20.5)  # at 21.7 s: 21.0 s, of which 20.5 s in phases
    third = script.ask()  # at 21.8 s
    script.submit(third, lane="lane-0")  # taken at 22.3 s: .6 s after
    script.end(second, failed(Kind.CRASHED, "rank 1 died"), final=False, after=7.7)  # at 30.0 s: 28.8 s lost
    script.end(third, ran(1.8, 300_000), after=20.0)  # at 50.0 s: 27.7 s
    script.finish()
    found = lane_time(StudyRecord.from_events(script))
    assert found.parts == pytest.approx(
        {
            "lane start": 0.7 + 1.2,
            "data": 0.4,
            "compile": 6.2,
            "train": 30.0,
            "validate": 1.8,
            "export": 0.8,
            "score": 1.8,
            "between trials": (21.0 - 20.5) + 0.6 + (27.7 - 20.5),
            "lost attempts": 28.8,
            "idle": 20.0,
        }
    )
    assert found.total_s == pytest.approx(2 * 50.0)
    assert found.share == pytest.approx((30.0 + 1.8) / 100.0)
    assert found.before_s == 0.0


def test_lanes_that_come_and_go_are_counted_while_they_are_there():
    script = Script()
    script.start(slots=1)
    script.add("lanes_changed", 10.0, slots=2, holding={"nodes": 3, "gpus": 8}, news=["lane-1 was added"])
    first, second = script.ask(), script.ask()
    script.submit(first, lane="lane-0")
    script.submit(second, lane="lane-1")  # taken at 11.2 s, 1.2 s after it was added
    script.end(second, ran(1.8, 300_000), after=21.8)  # at 33 s
    script.add("lanes_changed", 7.0, slots=1, holding={"nodes": 2, "gpus": 0}, news=["lane-1 is lost"])
    script.end(first, ran(1.8, 300_000), after=10.0)  # at 50 s
    script.finish()
    record = StudyRecord.from_events(script)
    found = lane_time(record)
    assert found.total_s == pytest.approx(50.0 + 30.0)
    assert found.parts["lane start"] == pytest.approx(10.7 + 1.2)
    assert found.parts["idle"] == pytest.approx(7.0)
    assert booked(record).node_s == pytest.approx(10 * 1 + 30 * 3 + (10 + 90) * 2)
    assert booked(record).gpu_s == pytest.approx(30 * 8)
    assert [words for _, words in record.generations[0].news] == ["lane-1 was added", "lane-1 is lost"]


def test_what_ran_when_its_driver_was_lost_counts_to_its_last_record_only():
    script = Script()
    script.start()
    trial = script.ask()
    script.submit(trial)  # taken at .6 s
    script.phase(trial, "train", 9.4)  # at 10 s
    script.resume(2, [], after=600.0)
    script.end(trial, failed(Kind.PREEMPTED, "driver lost", "driver lost"), final=False, after=0.0)
    script.submit(trial, attempt=2)  # taken .5 s later
    script.end(trial, ran(1.8, 300_000), attempt=2, after=20.5)
    script.finish()
    found = lane_time(StudyRecord.from_events(script))
    assert found.total_s == pytest.approx(10.0 + 21.0)
    assert found.parts["lost attempts"] == pytest.approx(9.4)
    assert found.parts["lane start"] == pytest.approx(0.6 + 0.5)


def test_an_attempt_has_its_wait_its_phases_and_the_rest():
    script = Script()
    script.start()
    trial = script.ask()
    script.submit(trial)
    script.end(trial, ran(1.8, 300_000), after=22.0)
    (attempt,) = StudyRecord.from_events(script).trials[0].attempts
    assert attempt_seconds(attempt) == pytest.approx(
        {
            "start": 0.5,
            "data": 0.2,
            "compile": 3.1,
            "train": 15.0,
            "validate": 0.9,
            "export": 0.4,
            "score": 0.9,
            "rest": 1.5,
        }
    )


def test_a_study_without_time_has_no_share():
    script = Script()
    script.start()
    assert lane_time(StudyRecord.from_events(script)).share is None
