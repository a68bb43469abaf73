from typing import Any

import pytest

from golfray.sweep.estimate import TimeLeft, running_words, time_left
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord

NOW = 1000.0


class Log:
    """Events of a study, made one after the other."""

    def __init__(self) -> None:
        self.record = StudyRecord()
        self.write("study_started", study="a")

    def write(self, event: str, time: float = NOW, **fields: Any) -> None:
        self.record.apply({"seq": 0, "time": time, "event": event, **fields})

    def submit(self, seconds: float | None = 60.0, **sections: dict[str, Any]) -> int:
        number = len(self.record.trials)
        settings = {"stop": {"steps": None if seconds else 100, "seconds": seconds}, **sections}
        asked = {"role": "sampler", "params": {}, "told": True, "seed": 1, "replicate_of": None}
        self.write("trial_asked", trial=number, settings=settings, **asked)
        self.write("attempt_submitted", trial=number, attempt=1, job_id=str(number), folder="x")
        return number

    def enter(self, number: int, phase: str, ago: float) -> None:
        self.write("phase", NOW - ago, trial=number, attempt=1, job_id=str(number), phase=phase)

    def end(self, number: int, kind: Kind = Kind.SCORED, **phases: float) -> None:
        outcome = Outcome(kind, "", {"bpb/roundtrip": 2.0}, phases)
        self.write("attempt_ended", trial=number, attempt=1, job_id=str(number), outcome=outcome.to_dict())


@pytest.fixture
def log() -> Log:
    return Log()


def seconds_left(log: Log, later: float = 0.0) -> float | None:
    left = time_left(log.record, NOW + later)
    assert left.unknown == ()
    return left.seconds


def scored(log: Log, number: int | None = None, **phases: float) -> None:
    log.end(
        log.submit() if number is None else number,
        **{"data": 0.0, "compile": 0.0, "train": 1.0, "validate": 0.0, "export": 0.0, "score": 0.0, **phases},
    )


def test_nothing_runs(log: Log) -> None:
    assert time_left(log.record, NOW) == TimeLeft(0.0, ())
    assert running_words(log.record, NOW) == "no trial is running"
    log.end(log.submit(), train=60.0)
    assert running_words(log.record, NOW) == "no trial is running"


def test_training_takes_what_its_settings_say(log: Log) -> None:
    scored(log)
    number = log.submit(60.0)
    assert seconds_left(log) == 60
    log.enter(number, "data", 50)
    log.enter(number, "train", 20)
    assert seconds_left(log) == 40
    assert running_words(log.record, NOW) == "the running trial needs about 40 s more"
    assert seconds_left(log, 500) == 0


def test_what_no_trial_has_shown_yet_is_named_and_not_counted_as_nothing(log: Log) -> None:
    number = log.submit(60.0)
    rest = ("validate", "export", "score")
    assert time_left(log.record, NOW) == TimeLeft(60.0, ("data", "compile", *rest))
    log.enter(number, "compile", 5)
    assert time_left(log.record, NOW) == TimeLeft(60.0, ("compile", *rest))
    log.enter(number, "train", 20)
    assert time_left(log.record, NOW) == TimeLeft(40.0, rest)
    assert running_words(log.record, NOW) == (
        "the running trial needs at least 40 s more, and what no trial has shown yet: validate, export and score"
    )
    log.enter(number, "score", 3)
    assert running_words(log.record, NOW) == (
        "the running trial needs at least 0 s more, and what no trial has shown yet: score"
    )
    # A trial that was lost in validation shows nothing of what validation takes.
    log.end(log.submit(), Kind.PREEMPTED, train=60.0, validate=900.0)
    assert time_left(log.record, NOW) == TimeLeft(0.0, ("score",))


def test_other_phases_take_their_mean_so_far(log: Log) -> None:
    log.end(log.submit(), data=2.0, compile=8.0, train=61.0, validate=4.0, export=2.0, score=4.0)
    log.end(log.submit(), data=4.0, compile=10.0, train=63.0, validate=6.0, export=2.0, score=6.0)
    log.end(log.submit(), Kind.PREEMPTED, data=900.0, compile=900.0, train=900.0)
    number = log.submit(60.0)
    assert seconds_left(log) == 3 + 9 + 60 + 5 + 2 + 5
    log.enter(number, "compile", 4)
    assert seconds_left(log) == 5 + 60 + 5 + 2 + 5
    log.enter(number, "train", 70)
    assert seconds_left(log) == 5 + 2 + 5
    log.enter(number, "score", 1)
    assert seconds_left(log) == 4


def test_phases_that_the_settings_ask_for_are_to_come_too(log: Log) -> None:
    asked = {"export": {"gptq": True, "gptq_reserve_seconds": 4.0}, "evaluation": {"sliding_stride": 64}}
    log.enter(log.submit(60.0, **asked), "train", 20)
    assert time_left(log.record, NOW) == TimeLeft(36.0, ("validate", "calibrate", "export", "score", "sliding"))
    scored(log, log.submit(60.0, **asked), calibrate=2.0, sliding=7.0)
    assert seconds_left(log) == 36 + 2 + 7
    off = {"export": {"gptq": False, "gptq_reserve_seconds": 4.0}, "evaluation": {"sliding_stride": None}}
    log.enter(log.submit(60.0, **off), "train", 10)
    assert seconds_left(log) == 50


def test_the_slowest_of_several_counts(log: Log) -> None:
    scored(log)
    for ago in (10, 50, 30):
        log.enter(log.submit(60.0), "train", ago)
    assert running_words(log.record, NOW) == "the 3 running trials need about 50 s more"


def test_steps_take_what_they_took_before(log: Log) -> None:
    log.enter(log.submit(None), "train", 10)
    log.enter(log.submit(60.0), "train", 10)
    assert time_left(log.record, NOW).seconds is None
    assert running_words(log.record, NOW) == "the 2 running trials need an unknown time more"
    scored(log, train=80.0)
    assert seconds_left(log) == 70
    assert seconds_left(log, 15) == 55
