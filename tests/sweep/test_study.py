import collections
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from golfray.config.errors import ConfigError
from golfray.core.settings import settings_from_dict
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.executor import Finished
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord, best_feasible
from golfray.sweep.sampler import StudySampler
from golfray.sweep.statistics import claim
from golfray.sweep.trial_record import PRESET, PRESET_8BIT, REPLICATE, SAMPLER


def test_a_whole_study(make, watcher_class) -> None:
    watcher = watcher_class()
    study = make(observers=[watcher])
    record = study.run()
    roles = [trial.role for trial in record.trials]
    assert roles == [PRESET, PRESET_8BIT, REPLICATE, REPLICATE] + [SAMPLER] * 10
    assert record.end_reason == "budget spent: 12 trials"
    assert all(trial.outcome is not None for trial in record.trials)
    assert record.trials[1].outcome.kind is Kind.INFEASIBLE
    best = best_feasible(record)
    assert best.bytes_total <= record.cap_bytes
    assert best.bpb == min(t.bpb for t in record.trials if t.role != REPLICATE and t.outcome.kind is Kind.SCORED)
    assert claim(record).noise.runs == 3
    assert watcher.closed
    assert watcher.events == list(read_events(study.folder / LOG_NAME))
    assert [event["seq"] for event in watcher.events] == list(range(len(watcher.events)))


def test_the_record_is_the_log(make) -> None:
    study = make()
    live = study.run()
    assert not study.hopeless
    read = StudyRecord.load(study.folder)
    assert read.header == live.header
    assert [dataclasses.asdict(trial) for trial in read.trials] == [dataclasses.asdict(trial) for trial in live.trials]
    assert live.header["cap_bytes"] == 290_000
    assert live.header["budget"] == {"trials": 12, "minutes": None}
    assert live.header["generation"] == 1
    assert live.header["limits"]["validate"] == 1800.0
    assert live.header["host"]
    assert live.header["space"]["implied"] == {"export.scale_floor": 0.0}
    assert live.header["space"]["knobs"]["optimizer.matrix_lr"]["low"] == 0.02


def test_jobs_carry_complete_settings_and_a_folder_of_their_own(make, synthetic) -> None:
    executor = synthetic()
    study = make(executor=executor)
    record = study.run()
    for job, trial in zip(executor.submitted, record.trials, strict=True):
        settings = settings_from_dict(job.settings)
        assert settings.bytes_code == 50_000
        assert json.loads(json.dumps(job.settings)) == trial.settings
        assert settings.runtime.seed == trial.seed
        assert Path(job.folder) == study.folder / "trials" / f"{trial.number:04d}" / "attempt-1"
        assert study.folder / trial.attempt.folder == Path(job.folder)
    assert len({job.job_id for job in executor.submitted}) == len(executor.submitted)
    seeds = collections.Counter(trial.seed for trial in record.trials)
    assert sorted(seeds.values()) == [1, 1, 12]


@pytest.mark.parametrize("slots", [1, 3])
def test_lanes_are_kept_busy_and_no_more(make, synthetic, slots: int) -> None:
    executor = synthetic(slots=slots, finish_order=lambda job_id: sum(map(ord, job_id)) % 5)
    record = make(executor=executor).run()
    assert executor.most_at_once == slots
    assert len(record.trials) == 14
    assert record.counts.get("running", 0) == 0


def test_the_log_rebuilds_the_sampler(make, space_at) -> None:
    study = make()
    record = study.run()
    space = space_at()
    rebuilt = StudySampler(space.knobs, kind="tpe", seed=3, cap_bytes=record.cap_bytes, uniform_bpb=4.0)
    for trial in record.trials:
        if trial.role == SAMPLER:
            assert rebuilt.suggest(trial.number) == trial.params
            rebuilt.tell(trial.number, trial.outcome, trial.curve)
        elif trial.told:
            rebuilt.place(trial.number, trial.params)
            rebuilt.tell(trial.number, trial.outcome, trial.curve)


def test_the_same_study_twice_asks_the_same(make, tmp_path: Path) -> None:
    first = make().run()
    (tmp_path / "studies" / "small").rename(tmp_path / "studies" / "before")
    second = make().run()
    assert [trial.params for trial in first.trials] == [trial.params for trial in second.trials]


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


def make_again(make, study):
    """A second study of the same space, beside the first."""
    study.folder.rename(study.folder.with_name("before"))
    return make()


def test_between_its_attempts_a_trial_is_running(make, synthetic, watcher_class) -> None:
    between = []

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "attempt_ended" and not event["final"]:
            between.append((study.record.trials[0].outcome, study.record.counts))

    laws = iter([Outcome(Kind.PREEMPTED, "node gone"), Outcome(Kind.DIVERGED, "nan")])
    executor = synthetic(lambda settings: next(laws))
    study = make(
        SPACE_OF_ONE_KNOB.replace("trials: 4", "trials: 1").replace("replicates: 2", "replicates: 1"),
        executor=executor,
        observers=[watcher_class(act=look)],
    )
    record = study.run()
    assert between == [(None, {"running": 1})]
    assert record.counts == {"diverged": 1}


def test_phases_are_written_down(make) -> None:
    record = make(SPACE_OF_ONE_KNOB).run()
    assert {attempt.phase for trial in record.trials for attempt in trial.attempts} == {"train"}
    (attempt,) = record.trials[0].attempts
    assert attempt.started <= attempt.phases[0][1] <= attempt.last_sign <= attempt.ended


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


def test_minutes_end_the_asking_and_running_trials_finish(make, space_at, watcher_class) -> None:
    now = [0.0]

    def tick(event: dict[str, Any]) -> None:
        if event["event"] == "attempt_ended":
            now[0] += 25.0

    text = SPACE_OF_ONE_KNOB.replace("{trials: 4}", "{minutes: 2}")
    record = make(text, observers=[watcher_class(act=tick)], clock=lambda: now[0]).run()
    assert len(record.trials) == 5
    assert record.end_reason == "budget spent: 2 minutes"
    assert record.counts == {"scored": 5}


SPACE_OF_ONE_KNOB = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 4}
replicates: 2
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


# Each value can run, half of their combinations cannot: kv heads must divide heads.
HEADS = "model.num_heads: {choices: [2, 3, 6, 8]}, model.num_kv_heads: {choices: [1, 2, 3, 4]}"


def test_replicates_do_not_count_against_the_budget(make) -> None:
    record = make(SPACE_OF_ONE_KNOB.replace("trials: 4", "trials: 1")).run()
    assert [trial.role for trial in record.trials] == [PRESET, REPLICATE]


def test_impossible_combinations_are_crashes_and_the_study_goes_on(make, synthetic) -> None:
    text = SPACE_OF_ONE_KNOB.replace("trials: 4", "trials: 10") + "sampler: random\n"
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
    text = SPACE_OF_ONE_KNOB.replace("{trials: 4}", "{minutes: 1}")
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


def test_an_existing_study_is_never_overwritten(make) -> None:
    first, second = make(), make()
    first.run()
    before = (first.folder / LOG_NAME).read_bytes()
    with pytest.raises(ConfigError, match="--study-dir") as caught:
        make()
    assert f"`golfray tune --resume {first.folder}` goes on with it" in str(caught.value)
    with pytest.raises(ConfigError, match="never overwritten"):
        second.run()
    assert (first.folder / LOG_NAME).read_bytes() == before


def test_reading_a_study_loads_no_heavy_package() -> None:
    code = (
        "import sys, golfray.sweep.statistics, golfray.sweep.points, golfray.sweep.events; "
        "print([name for name in ('torch', 'ray', 'mlflow', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
