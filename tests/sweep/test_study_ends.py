"""What ends a study: its budget, a person, or a space of which nothing can run."""

import dataclasses
from typing import Any

from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.trial_record import PRESET, REPLICATE
from tests.sweep.small_studies import SHORT


def test_minutes_end_the_asking_and_running_trials_finish(make, space_at, watcher_class) -> None:
    now = [0.0]

    def tick(event: dict[str, Any]) -> None:
        if event["event"] == "attempt_ended":
            now[0] += 25.0

    text = SHORT.replace("{trials: 4}", "{minutes: 2}")
    record = make(text, observers=[watcher_class(act=tick)], clock=lambda: now[0]).run()
    assert len(record.trials) == 5
    assert record.end_reason == "budget spent: 2 minutes"
    assert record.counts == {"scored": 5}


# Each value can run, half of their combinations cannot: kv heads must divide heads.
HEADS = "model.num_heads: {choices: [2, 3, 6, 8]}, model.num_kv_heads: {choices: [1, 2, 3, 4]}"


def test_replicates_do_not_count_against_the_budget(make) -> None:
    record = make(SHORT.replace("trials: 4", "trials: 1")).run()
    assert [trial.role for trial in record.trials] == [PRESET, REPLICATE]


def test_impossible_combinations_are_crashes_and_the_study_goes_on(make, synthetic) -> None:
    text = SHORT.replace("trials: 4", "trials: 10") + "sampler: random\n"
    text = text.replace("knobs: {", f"knobs: {{{HEADS}, ")
    executor = synthetic()
    study = make(text, executor=executor)
    record = study.run()
    assert len(record.trials) == 11
    refused = [trial for trial in record.trials if trial.settings is None]
    assert refused
    assert len(executor.submitted) == 11 - len(refused)
    for trial in refused:
        assert trial.outcome.kind is Kind.CRASHED
        assert "configuration refused: " in trial.outcome.reason
        assert "num_kv_heads" in trial.outcome.reason
    assert dataclasses.asdict(StudyRecord.load(study.folder).trials[-1]) == dataclasses.asdict(record.trials[-1])


def test_hardly_anything_but_impossible_combinations_ends_the_study(make) -> None:
    text = SHORT.replace("{trials: 4}", "{minutes: 1}")
    # About one of these pairs in a thousand can run.
    pairs = "model.num_heads: {low: 2, high: 96}, model.num_kv_heads: {low: 2, high: 96}"
    text = text.replace("knobs: {", f"knobs: {{{pairs}, ")
    study = make(text)
    record = study.run()
    assert study.hopeless
    assert record.end_reason.startswith("20 configurations in a row were refused")


def test_stop_cancels_what_runs_and_asks_nothing_more(make, synthetic, watcher_class) -> None:
    executor = synthetic(slots=2, finish_order=lambda job_id: 9)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 1:
            study.stop("Ctrl-C")
            study.stop("a second reason")

    study = make(executor=executor, observers=[watcher_class(act=stop)])
    record = study.run()
    assert record.end_reason == "Ctrl-C"
    assert [trial.outcome.kind for trial in record.trials] == [Kind.CANCELLED, Kind.CANCELLED]
    assert record.trials[0].outcome.reason == "Ctrl-C"
    assert [trial.unfinished for trial in record.trials] == [True, True]
    assert not record.complete


def test_drain_starts_nothing_more_and_lets_what_runs_end(make, synthetic, watcher_class) -> None:
    executor = synthetic(slots=2, finish_order=lambda job_id: 3)

    def drain(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 1:
            study.drain("Ctrl-C")

    study = make(executor=executor, observers=[watcher_class(act=drain)])
    record = study.run()
    assert record.end_reason == "Ctrl-C"
    assert [trial.outcome.kind for trial in record.trials] == [Kind.SCORED, Kind.INFEASIBLE]
    assert not record.complete
    assert not study.hopeless


def test_stop_after_drain_ends_what_runs(make, synthetic, watcher_class) -> None:
    executor = synthetic(slots=2, finish_order=lambda job_id: 9)

    def act(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 1:
            study.drain("Ctrl-C") if event["step"] == 1 else study.stop("Ctrl-C again")

    study = make(executor=executor, observers=[watcher_class(act=act)])
    record = study.run()
    assert record.end_reason == "Ctrl-C"
    assert record.counts == {"cancelled": 2}
    assert record.trials[0].outcome.reason == "Ctrl-C"


def test_crashes_while_draining_are_left_to_a_resumed_study(make, synthetic, watcher_class) -> None:
    def drain(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            study.drain("Ctrl-C")

    executor = synthetic(lambda settings: Outcome(Kind.CRASHED, "killed"))
    study = make(executor=executor, observers=[watcher_class(act=drain)])
    record = study.run()
    assert len(executor.submitted) == 1
    assert record.trials[0].outcome.kind is Kind.CRASHED
    assert record.trials[0].unfinished
