"""A study whose trials, executor or observers fail."""

import dataclasses
import math
from typing import Any

import pytest

from golfray.sweep.choosing import best_feasible
from golfray.sweep.executor import Finished
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from tests.sweep.small_studies import SHORT


def make_again(make, study):
    """A second study of the same space, beside the first."""
    study.folder.rename(study.folder.with_name("before"))
    return make()


def test_crashes_and_divergences_are_outcomes(make, synthetic, law) -> None:
    seen = []

    def rough(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        if len(seen) % 4 == 2:
            return Outcome(Kind.CRASHED, "out of memory", fidelity={})
        if len(seen) % 4 == 3:
            return Outcome(Kind.DIVERGED, "loss is not finite", metrics={"train/loss": math.nan})
        return law(settings)

    record = make(executor=synthetic(rough)).run()
    assert len(record.trials) == 14
    ends = [[attempt.outcome.kind for attempt in trial.attempts] for trial in record.trials]
    # Every second of four attempts crashes; the one after it is the same trial's, and diverges.
    assert [trial for trial in ends if len(trial) == 2] == [[Kind.CRASHED, Kind.DIVERGED]] * 5
    assert record.counts["diverged"] == 5
    assert "crashed" not in record.counts
    assert best_feasible(record).outcome.kind is Kind.SCORED


def test_a_crashed_trial_is_run_again_before_anything_new_and_told_once(make, synthetic, law) -> None:
    seen = []

    def once(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        return Outcome(Kind.CRASHED, "rank 1 was killed") if len(seen) == 5 else law(settings)

    study = make(executor=synthetic(once))
    record = study.run()
    trial = record.trials[4]
    assert [attempt.number for attempt in trial.attempts] == [1, 2]
    assert [attempt.final for attempt in trial.attempts] == [False, True]
    assert trial.attempts[1].folder == "trials/0004/attempt-2"
    assert seen[4] == seen[5]
    assert trial.outcome.kind is Kind.SCORED
    untroubled = make_again(make, study).run()
    assert [trial.params for trial in record.trials] == [trial.params for trial in untroubled.trials]
    assert [trial.outcome for trial in record.trials] == [trial.outcome for trial in untroubled.trials]


def test_between_its_attempts_a_trial_is_running(make, synthetic, watcher_class) -> None:
    between = []

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "attempt_ended" and not event["final"]:
            between.append((study.record.trials[0].outcome, study.record.counts))

    laws = iter([Outcome(Kind.PREEMPTED, "node gone"), Outcome(Kind.DIVERGED, "nan")])
    executor = synthetic(lambda settings: next(laws))
    study = make(
        SHORT.replace("trials: 4", "trials: 1").replace("replicates: 2", "replicates: 1"),
        executor=executor,
        observers=[watcher_class(act=look)],
    )
    record = study.run()
    assert between == [(None, {"running": 1})]
    assert record.counts == {"diverged": 1}


def test_three_crashes_at_the_start_end_the_study(make, synthetic) -> None:
    executor = synthetic(lambda settings: Outcome(Kind.CRASHED, "no such device"))
    study = make(executor=executor)
    record = study.run()
    assert study.hopeless
    assert record.hopeless
    assert not record.complete
    assert [job.job_id for job in executor.submitted] == ["small-0000-1", "small-0000-2", "small-0001-1"]
    assert record.end_reason == "all of the first 3 attempts crashed, the last one: no such device"
    assert best_feasible(record) is None


def test_more_than_half_of_ten_attempts_crashing_end_the_study(make, synthetic, law) -> None:
    seen = []

    def later(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        return law(settings) if len(seen) in (1, 4, 7, 10) else Outcome(Kind.CRASHED, "killed")

    study = make(executor=synthetic(later))
    record = study.run()
    assert study.hopeless
    assert len(seen) == 10
    assert record.end_reason == "6 of the last 10 attempts crashed, the last one: killed"


def test_five_of_ten_do_not(make, synthetic, law) -> None:
    seen = []

    def later(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        return law(settings) if len(seen) % 2 else Outcome(Kind.CRASHED, "killed")

    study = make(executor=synthetic(later))
    study.run()
    assert not study.hopeless
    assert len(seen) > 20


def test_the_same_error_at_the_same_place_before_the_first_step_is_not_tried_again(make, synthetic, law) -> None:
    class AtOnce(synthetic):
        """Jobs end before they report a step."""

        def _advance(self, lane, job):
            self._age[job.job_id] = 99
            return super()._advance(lane, job)

    def broken(settings: dict[str, Any]) -> Outcome:
        where = {6: "ValueError at model.py:7", 7: "KeyError at model.py:9"}.get(settings["export"]["bits_mlp"])
        return law(settings) if where is None else Outcome(Kind.CRASHED, "raised", error=where)

    record = make(
        executor=AtOnce(broken),
        more="first_points: [{export.bits_mlp: 5}, {export.bits_mlp: 4}, "
        "{export.bits_mlp: 7}, {muon.momentum_end: 0.9}]\n",
    ).run()
    ends = [(trial.settings["export"]["bits_mlp"], len(trial.attempts)) for trial in record.trials]
    assert ends[:6] == [(6, 2), (8, 1), (5, 1), (4, 1), (7, 2), (6, 1)]


def test_a_score_over_the_cap_or_without_a_number_is_none(make, synthetic, law) -> None:
    seen = []

    def wrong(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        honest = law(settings)
        over = {**honest.metrics, "bpb/roundtrip": 0.5, "bytes/total": 290_001.0}
        nan = {**honest.metrics, "bpb/roundtrip": math.nan}
        if len(seen) in (1, 2):
            return dataclasses.replace(honest, kind=Kind.SCORED, metrics=over if len(seen) == 1 else nan)
        return honest

    record = make(executor=synthetic(wrong)).run()
    assert record.trials[0].outcome.kind is Kind.INFEASIBLE
    assert record.trials[0].outcome.reason == "1 bytes over the cap of 290000"
    assert record.trials[1].attempts[0].outcome.kind is Kind.CRASHED
    assert best_feasible(record).bpb > 0.5


def test_a_failing_observer_is_left_behind_and_named(make, watcher_class) -> None:
    broken, watcher = watcher_class(fail_at="trial_asked"), watcher_class()
    record = make(observers=[broken, watcher]).run()
    assert len(record.trials) == 14
    assert [event["event"] for event in broken.events] == ["study_started"]
    (failed,) = [event for event in watcher.events if event["event"] == "observer_failed"]
    assert failed["observer"] == "Watcher"
    assert failed["error"] == "OSError: database is gone"


def test_a_failing_executor_ends_the_study_in_its_log(make, synthetic) -> None:
    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            if len(self.submitted) == 3:
                raise ConnectionError("cluster is gone")
            return super().events(timeout)

    study = make(executor=Dying())
    with pytest.raises(ConnectionError):
        study.run()
    record = StudyRecord.load(study.folder)
    assert record.end_reason == "the study failed: ConnectionError: cluster is gone"
    assert record.trials[-1].outcome.kind is Kind.PREEMPTED
    assert record.trials[-1].outcome.error == "driver lost"
    assert record.trials[-1].unfinished
    assert record.counts.get("running", 0) == 0
    assert not record.complete


def test_an_executor_that_ends_a_job_twice_is_caught(make, synthetic) -> None:
    class Twice(synthetic):
        def events(self, timeout: float) -> list:
            found = super().events(timeout)
            return found + [event for event in found if isinstance(event, Finished)]

    with pytest.raises(RuntimeError, match="the end of a job twice"):
        make(executor=Twice()).run()
