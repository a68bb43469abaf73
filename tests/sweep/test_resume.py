"""A driver that takes over: what the one before left open is ended, said and run again."""

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest

from golfray.sweep.events import LOG_NAME, EventLogError, read_events
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.retry import DRIVER_LOST
from golfray.sweep.space_record import space_of
from golfray.sweep.trial_record import SAMPLER
from golfray.sweep.work_left import work_left
from tests.sweep.small_studies import RESUMED, what_came_of


def test_what_a_lost_driver_had_running_ends_as_preempted_and_runs_again(make_in, synthetic) -> None:
    whole = make_in(RESUMED, synthetic(finish_order=lambda job_id: 3))
    whole.run()
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    records = [json.loads(line) for line in lines]
    at = next(i for i, r in enumerate(records) if r["event"] == "progress" and r["trial"] == 4 and r["step"] == 2)
    before = b"".join(lines[: at + 1])
    (whole.folder / LOG_NAME).write_bytes(before)
    executor = synthetic()
    record = make_in(RESUMED, executor).resume()
    assert (whole.folder / LOG_NAME).read_bytes().startswith(before), "what was logged stays as it is"
    first, second = record.trials[4].attempts
    assert first.outcome.kind is Kind.PREEMPTED
    assert first.outcome.reason == first.outcome.error == DRIVER_LOST
    assert first.outcome.metrics == {"train/loss": 2.5, "train/steps": 2.0}
    begun = next(r["time"] for r in records if r["event"] == "phase" and r["trial"] == 4)
    assert first.outcome.phases == {"train": pytest.approx(records[at]["time"] - begun)}
    assert (first.generation, second.generation) == (1, 2)
    assert second.folder == "trials/0004/attempt-2"
    assert executor.submitted[0].job_id == "one-0004-2"
    assert executor.submitted[0].settings == record.trials[4].settings
    assert [len(trial.attempts) for trial in record.trials] == [1, 1, 1, 1, 2, 1, 1, 1]


def test_a_driver_that_is_lost_often_costs_a_trial_no_retry(make_in, synthetic, law) -> None:
    """Twelve drivers die under trial 0; then it crashes, and it still has the one retry that a crash has."""
    folder = make_in(RESUMED, synthetic()).folder

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            raise SystemExit

    for number in range(12):
        study = make_in(RESUMED, Dying())
        with pytest.raises(SystemExit):
            study.run() if number == 0 else study.resume()
    laws = iter([Outcome(Kind.CRASHED, "killed")])
    record = make_in(RESUMED, synthetic(lambda settings: next(laws, None) or law(settings))).resume()
    assert record.generation == 13
    kinds = Counter(attempt.outcome.kind for attempt in record.trials[0].attempts)
    assert kinds == {Kind.PREEMPTED: 12, Kind.CRASHED: 1, Kind.SCORED: 1}
    assert len(list((folder / "trials" / "0000").iterdir())) == 14


def test_a_trial_that_was_asked_and_never_submitted_is_submitted(make_in, synthetic) -> None:
    whole = make_in(RESUMED, synthetic())
    expected = what_came_of(whole.run())
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"attempt_submitted","trial":2' in line)
    for trial in (whole.folder / "trials").iterdir():
        if int(trial.name) >= 2:
            for file in trial.iterdir():
                file.rmdir()
    (whole.folder / LOG_NAME).write_bytes(b"".join(lines[:at]))
    record = make_in(RESUMED, synthetic()).resume()
    assert what_came_of(record) == expected
    assert [[attempt.number for attempt in trial.attempts] for trial in record.trials] == [[1]] * 8


def test_an_attempts_folder_that_holds_something_the_log_does_not_know_is_left_alone(make_in, synthetic) -> None:
    study = make_in(RESUMED, synthetic())
    stale = study.folder / "trials" / "0001" / "attempt-1" / "checkpoint.pt"
    stale.parent.mkdir(parents=True)
    stale.write_text("of a lost record")
    record = study.run()
    assert record.trials[1].attempt.folder == "trials/0001/attempt-2"
    assert stale.read_text() == "of a lost record"


def test_a_refusal_that_was_not_ended_is_ended_with_its_reason(make_in, synthetic) -> None:
    text = RESUMED.replace("knobs: {", "knobs: {model.num_heads: {choices: [2, 3, 6, 8]}, ")
    text = text.replace("knobs: {", "knobs: {model.num_kv_heads: {choices: [1, 2, 3, 4]}, ")
    whole = make_in(text, synthetic())
    expected = what_came_of(whole.run())
    lines = (whole.folder / LOG_NAME).read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b"configuration refused" in line)
    (whole.folder / LOG_NAME).write_bytes(b"".join(lines[:at]))
    assert what_came_of(make_in(text, synthetic()).resume()) == expected


def test_a_study_that_was_stopped_runs_what_it_cancelled_when_it_is_resumed(make_in, synthetic, watcher_class) -> None:
    expected = what_came_of(make_in(RESUMED, synthetic(slots=2)).run())
    (make_in(RESUMED, synthetic()).folder / LOG_NAME).unlink()

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 3:
            study.stop("interrupted")

    study = make_in(RESUMED, synthetic(slots=2), observers=[watcher_class(act=stop)])
    stopped = study.run()
    cancelled = [trial.number for trial in stopped.trials if trial.outcome.kind is Kind.CANCELLED]
    assert cancelled == [2, 3]
    space = space_of(stopped, "log")
    left = work_left(space, stopped)
    assert (left.unfinished, len(left.planned), left.suggestions, left.most_lanes) == ((2, 3), 0, 4, 6)
    assert not left.nothing
    resumed = make_in(RESUMED, synthetic(slots=2)).resume()
    assert what_came_of(resumed) == expected
    assert resumed.complete
    assert resumed.end_reason == "budget spent: 7 trials"
    assert work_left(space, resumed).nothing


@pytest.mark.parametrize("error", [KeyboardInterrupt, ConnectionError])
def test_a_driver_that_fails_or_is_interrupted_leaves_its_attempts_to_the_next(make_in, synthetic, error) -> None:
    expected = what_came_of(make_in(RESUMED, synthetic()).run())
    (make_in(RESUMED, synthetic()).folder / LOG_NAME).unlink()

    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            if len(self.submitted) == 4:
                raise error
            return super().events(timeout)

    study = make_in(RESUMED, Dying())
    with pytest.raises(error):
        study.run()
    assert study.record.trials[-1].unfinished
    assert what_came_of(make_in(RESUMED, synthetic()).resume()) == expected


def test_trials_of_a_study_that_gave_up_are_tried_again_once_a_person_looked(make_in, synthetic, law) -> None:
    expected = what_came_of(make_in(RESUMED, synthetic()).run())
    (make_in(RESUMED, synthetic()).folder / LOG_NAME).unlink()
    given_up = make_in(RESUMED, synthetic(lambda settings: Outcome(Kind.CRASHED, "no device")))
    assert given_up.run().hopeless
    assert [len(trial.attempts) for trial in given_up.record.trials] == [2, 1]
    assert work_left(space_of(given_up.record, "log"), given_up.record).unfinished == (0, 1)
    resumed = make_in(RESUMED, synthetic()).resume()
    assert what_came_of(resumed) == expected
    assert not resumed.hopeless
    assert [len(trial.attempts) for trial in resumed.trials][:3] == [3, 2, 1]


def test_a_crash_that_a_trial_had_its_retry_for_stays_where_the_study_did_not_give_up(make_in, synthetic, law) -> None:
    def broken(settings: dict[str, Any]) -> Outcome:
        return Outcome(Kind.CRASHED, "out of memory") if settings["optimizer"]["matrix_lr"] == 0.1 else law(settings)

    whole = make_in(RESUMED, synthetic(broken))
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: content.rindex(b'{"seq"')])
    record = make_in(RESUMED, synthetic()).resume()
    assert record.trials[1].outcome.kind is Kind.CRASHED
    assert len(record.trials[1].attempts) == 2


def test_who_watches_a_resumed_study_is_told_from_there_on(make_in, synthetic, watcher_class) -> None:
    whole = make_in(RESUMED, synthetic())
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: len(content) // 2])
    count = len(list(read_events(whole.folder / LOG_NAME)))
    watcher = watcher_class()
    make_in(RESUMED, synthetic(), observers=[watcher]).resume()
    written = list(read_events(whole.folder / LOG_NAME))
    assert watcher.events == written[count:]
    resumed = watcher.events[0]
    assert (resumed["event"], resumed["generation"], resumed["changes"]) == ("study_resumed", 2, [])
    assert resumed["torn"] == "events.jsonl.torn-1"
    assert resumed["slots"] == 1
    assert resumed["host"]
    header = StudyRecord.load(whole.folder).header
    assert header["study"] == "one"
    assert header["generation"] == 2


def test_there_is_nothing_to_resume_where_no_study_started(make_in, synthetic) -> None:
    study = make_in(RESUMED, synthetic())
    with pytest.raises(EventLogError, match="no study has started here"):
        study.resume()
    with pytest.raises(EventLogError, match="log: no study has started here"):
        space_of(StudyRecord(), "log")


def test_a_rebuilt_study_is_the_same_whoever_reads_it(make_in, synthetic, rough) -> None:
    whole = make_in(RESUMED, synthetic(rough))
    whole.run()
    content = (whole.folder / LOG_NAME).read_bytes()
    (whole.folder / LOG_NAME).write_bytes(content[: len(content) * 2 // 3])
    live = make_in(RESUMED, synthetic(rough)).resume()
    read = StudyRecord.load(whole.folder)
    assert repr([dataclasses.asdict(trial) for trial in read.trials]) == repr(
        [dataclasses.asdict(trial) for trial in live.trials]
    )
    assert read.header == live.header
    assert [trial.role for trial in read.trials].count(SAMPLER) == 5
