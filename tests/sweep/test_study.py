"""One study from its first trial to its end."""

import collections
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.core.settings import settings_from_dict
from golfray.sweep.budget import StudyBudget
from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.statistics import claim
from golfray.sweep.trial_record import PRESET, PRESET_8BIT, REPLICATE, SAMPLER
from tests.sweep.small_studies import SHORT


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
    lowest = choose(record).lowest
    assert lowest.bpb == min(t.bpb for t in record.trials if t.role != REPLICATE and t.outcome.kind is Kind.SCORED)
    assert best.role != REPLICATE
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
    assert live.header["budget"] == StudyBudget(trials=12).to_dict()
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


def test_phases_are_written_down(make) -> None:
    record = make(SHORT).run()
    assert {attempt.phase for trial in record.trials for attempt in trial.attempts} == {"train"}
    (attempt,) = record.trials[0].attempts
    assert attempt.started <= attempt.phases[0][1] <= attempt.last_sign <= attempt.ended


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
