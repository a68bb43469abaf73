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
from golfray.sweep.records import PRESET, PRESET_8BIT, REPLICATE, SAMPLER, StudyRecord, best_feasible
from golfray.sweep.sampler import StudySampler
from golfray.sweep.statistics import claim
from golfray.sweep.study import Study, create_study_folder, only_driver_of

DATA = {"folder": "", "name": "synthetic", "reference": {"uniform": 4.0}, "warning": None}


class Watcher:
    """Remembers what it is told; can be made to fail at one event, or to act on one."""

    def __init__(self, fail_at: str | None = None, act: Any = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.closed = False
        self._fail_at, self._act = fail_at, act

    def on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == self._fail_at:
            raise OSError("database is gone")
        self.events.append(event)
        if self._act is not None:
            self._act(event)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def make(space_at, synthetic, tmp_path):
    """Builds a study of the small space (or of ``text``) on a synthetic executor."""

    def build(text: str | None = None, more: str = "", executor=None, **kwargs) -> Study:
        space = space_at(more=more) if text is None else space_at(text, more)
        executor = executor or synthetic()
        folder = create_study_folder(tmp_path / "studies" / space.name)
        return Study(space, executor, folder, bytes_code=50_000, uniform_bpb=4.0, data=DATA, **kwargs)

    return build


def test_a_whole_study(make) -> None:
    watcher = Watcher()
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
    assert record.counts["crashed"] == 4
    assert record.counts["diverged"] == 3
    assert best_feasible(record).outcome.kind is Kind.SCORED


def test_three_crashes_at_the_start_end_the_study(make, synthetic) -> None:
    executor = synthetic(lambda settings: Outcome(Kind.CRASHED, "no such device"))
    study = make(executor=executor)
    record = study.run()
    assert study.hopeless
    assert len(executor.submitted) == 3
    assert record.end_reason == "all of the first 3 attempts crashed, the last one: no such device"
    assert best_feasible(record) is None


def test_crashes_after_a_success_do_not_end_it(make, synthetic, law) -> None:
    seen = []

    def later(settings: dict[str, Any]) -> Outcome:
        seen.append(settings)
        return law(settings) if len(seen) == 1 else Outcome(Kind.CRASHED, "killed")

    assert len(make(executor=synthetic(later)).run().trials) == 14


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
    assert record.trials[1].outcome.kind is Kind.CRASHED
    assert best_feasible(record).bpb > 0.5


def test_minutes_end_the_asking_and_running_trials_finish(make, space_at) -> None:
    now = [0.0]

    def tick(event: dict[str, Any]) -> None:
        if event["event"] == "attempt_ended":
            now[0] += 25.0

    text = SPACE_OF_ONE_KNOB.replace("{trials: 4}", "{minutes: 2}")
    record = make(text, observers=[Watcher(act=tick)], clock=lambda: now[0]).run()
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


def test_replicates_do_not_count_against_the_budget(make) -> None:
    record = make(SPACE_OF_ONE_KNOB.replace("trials: 4", "trials: 1")).run()
    assert [trial.role for trial in record.trials] == [PRESET, REPLICATE]


def test_impossible_combinations_are_crashes_and_the_study_goes_on(make, synthetic) -> None:
    text = SPACE_OF_ONE_KNOB.replace("trials: 4", "trials: 10") + "sampler: random\n"
    text = text.replace("knobs: {", "knobs: {model.num_heads: {choices: [2, 4, 5, 7]}, ")
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
        assert "model_dim / num_heads" in trial.outcome.reason
    assert dataclasses.asdict(StudyRecord.load(study.folder).trials[-1]) == dataclasses.asdict(record.trials[-1])


def test_nothing_but_impossible_combinations_ends_the_study(make) -> None:
    text = SPACE_OF_ONE_KNOB.replace("{trials: 4}", "{minutes: 1}")
    text = text.replace("knobs: {", "knobs: {model.num_heads: {choices: [5, 7]}, ")
    record = make(text).run()
    assert record.end_reason.startswith("20 configurations in a row were refused")


def test_stop_cancels_what_runs_and_asks_nothing_more(make, synthetic) -> None:
    executor = synthetic(slots=2, finish_order=lambda job_id: 9)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["trial"] == 1:
            study.stop("Ctrl-C")
            study.stop("a second reason")

    study = make(executor=executor, observers=[Watcher(act=stop)])
    record = study.run()
    assert record.end_reason == "Ctrl-C"
    assert [trial.outcome.kind for trial in record.trials] == [Kind.CANCELLED, Kind.CANCELLED]
    assert record.trials[0].outcome.reason == "Ctrl-C"


def test_a_failing_observer_is_left_behind_and_named(make) -> None:
    broken, watcher = Watcher(fail_at="trial_asked"), Watcher()
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
    assert record.trials[-1].outcome.kind is Kind.CRASHED
    assert record.counts.get("running", 0) == 0


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
    assert str(first.folder) in str(caught.value)
    with pytest.raises(ConfigError, match="never overwritten"):
        second.run()
    assert (first.folder / LOG_NAME).read_bytes() == before


def test_a_folder_has_one_driver_at_a_time_however_it_ends(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from golfray.sweep.study import only_driver_of\n"
        "with only_driver_of(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(ConfigError, match="another golfray is at work here") as caught, only_driver_of(tmp_path):
            pass
        assert str(tmp_path) in str(caught.value)
        other.kill()
    for _ in range(2):
        with only_driver_of(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/a: cannot be made"):
        create_study_folder(tmp_path / "file" / "a")


def test_reading_a_study_loads_no_heavy_package() -> None:
    code = (
        "import sys, golfray.sweep.statistics, golfray.sweep.points, golfray.sweep.events; "
        "print([name for name in ('torch', 'ray', 'mlflow', 'optuna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
