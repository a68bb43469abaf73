"""Short runs first: what goes up, that each run is whole, and that no short one is ranked with a long one."""

import collections
import io
import itertools
from pathlib import Path

import pytest
from optuna.trial import TrialState
from rich.console import Console

from golfray.cli.output import JSON_SCHEMA
from golfray.config.errors import ConfigError
from golfray.report.lookup import load_trial
from golfray.report.ranking import outcome_words
from golfray.report.summary import trials_table
from golfray.report.trial_page import trial_document, trial_lines
from golfray.sweep.choosing import best_feasible
from golfray.sweep.confirmation import plan_confirmations
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.rungs import REDUCTION, SHARES, shortened
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.trial_record import RUNG, SAMPLER
from golfray.tracking.projection import outcome_tags
from tests.cli.documented import read_tables
from tests.sweep.sim.conftest import SPACE
from tests.sweep.small_studies import what_came_of

ALONE = Simulation(scale="laptop")
TEXT = SPACE.replace("{trials: 10}", "{trials: 40}").replace("stop.steps: 120", "stop.steps: 270")
TEXT += "sampler: random\nstopping: rungs\n"


@pytest.fixture(params=["random", "tpe"])
def study(request, simulated, tmp_path):
    """A study on rungs, not yet run."""
    return simulated(ALONE, TEXT.replace("random", request.param), tmp_path / "rungs")


def test_the_best_third_of_each_rung_goes_up(study):
    record = study.run()
    assert record.complete
    ran = [trial for trial in record.trials if trial.role in (RUNG, SAMPLER) and not trial.too_large]
    by_share = {share: [trial for trial in ran if trial.share == share] for share in SHARES}
    for shorter, longer in itertools.pairwise(SHARES):
        below, above = by_share[shorter], by_share[longer]
        # More than a third in the end, since who was among the best early need not stay there.
        assert 1 <= len(above) < len(below)
        for trial in above:
            root = record.trials[trial.promotes]
            assert (root.share, root.params, root.seed) == (shorter, trial.params, trial.seed)
            earlier = [other for other in below if other.number < trial.number and other.bpb is not None]
            better = sum(other.bpb < root.bpb for other in earlier)
            assert better < len(earlier) // REDUCTION, "it was among the best third when it went up"
        assert len({trial.promotes for trial in above}) == len(above)
    assert {trial.role for trial in by_share[1.0]} == {SAMPLER}


def test_every_run_has_its_own_schedule_to_its_end(study):
    for trial in study.run().trials:
        if trial.role != RUNG or trial.too_large:
            continue
        assert trial.setting("stop.steps") == round(270 * trial.share)
        assert trial.outcome.kind in (Kind.SCORED, Kind.INFEASIBLE, Kind.DIVERGED)
        step, last = trial.curve[-1]
        assert step == trial.setting("stop.steps")
        assert last["train/lr_multiplier"] < 0.05
        assert trial.foreseen is not None


def test_short_runs_are_never_ranked_with_whole_ones(study):
    record = study.run()
    short = [trial for trial in record.trials if trial.share != 1.0 and trial.bpb is not None]
    assert {trial.share for trial in short} == set(SHARES[:-1])
    assert len({record.fidelity_of(trial) for trial in record.trials if trial.bpb is not None}) == 3
    assert all(trial.share == 1.0 for trial in record.candidates)
    assert best_feasible(record).share == 1.0
    with pytest.raises(ConfigError, match="is a short run, of 11% of the length"):
        plan_confirmations(record, [next(t for t in short if t.share == SHARES[0])], 1, paired=False)


def test_the_sampler_hears_how_far_each_run_went_and_no_short_one_s_size(study):
    record = study.run()
    told = [trial for trial in record.trials if trial.told]
    for trial, heard in zip(told, study._agenda._sampler.trials, strict=True):
        assert heard.params == trial.params
        if trial.share == 1.0 or trial.too_large or trial.bpb is None:
            continue
        assert heard.state is TrialState.PRUNED
        assert heard.intermediate_values == {round(1000 * trial.share): trial.bpb}
        assert heard.constraints == {}


def test_a_resumed_study_goes_on_as_it_would_have(study, simulated, tmp_path: Path, watcher_class):
    whole = study.run()
    text = TEXT.replace("random", study._space.sampler)

    def stop(event):
        if event["event"] == "attempt_ended" and event["trial"] == 23:
            raise KeyboardInterrupt

    lost = simulated(ALONE, text, tmp_path / "lost", observers=[watcher_class(act=stop)])
    with pytest.raises(KeyboardInterrupt):
        lost.run()
    record = simulated(ALONE, text, tmp_path / "lost", start=1.1e9).resume()
    assert what_came_of(record) == what_came_of(whole)
    assert [(t.share, t.promotes) for t in record.trials] == [(t.share, t.promotes) for t in whole.trials]
    assert repr(StudyRecord.load(tmp_path / "lost").trials) == repr(record.trials)


def test_what_a_person_and_mlflow_are_told_of_a_short_run(study, tmp_path):
    record = study.run()
    short = next(trial for trial in record.trials if trial.share == SHARES[0] and trial.bpb is not None)
    longer = next(trial for trial in record.trials if trial.promotes is not None)
    assert outcome_words(record, short) == "11% run"
    assert outcome_tags(short.outcome, short.share)["golfray.feasible"] == "unknown"
    pages = {trial.number: load_trial(f"{tmp_path}/rungs/{trial.number}") for trial in (short, longer)}
    assert "  a short run, of 11% of the length: its size means nothing" in trial_lines(pages[short.number])
    document = {"schema": JSON_SCHEMA, "kind": "trial", **trial_document(pages[longer.number])}
    assert read_tables().mistakes(document) == []
    assert document["promotes"] == longer.promotes
    console = Console(file=io.StringIO(), width=120)
    console.print(trials_table(record, 120))
    (row,) = [line.split() for line in console.file.getvalue().splitlines() if f"t{short.number:03d}" in line]
    # Neither bytes nor a margin.
    assert row == [f"t{short.number:03d}", "rung", "11%", "run", f"{short.bpb:.4f}", "-", "-"]


def test_on_lanes_with_mishaps_nothing_goes_up_twice(simulated):
    record = simulated(Simulation(scale="laptop", lanes=3, crash=0.1, preempt=0.1), TEXT).run()
    assert record.complete
    again = collections.Counter(trial.promotes for trial in record.trials if trial.promotes is not None)
    assert again
    assert set(again.values()) == {1}


def test_a_short_run_has_a_share_of_all_that_is_counted_in_steps(space_at):
    text = TEXT.replace("stop.steps: 120", "stop.steps: 270")
    base = space_at(text, "").base.with_values(
        {
            "schedule.warmdown_share": None,
            "schedule.warmdown_steps": 90,
            "muon.momentum_warmup_share": None,
            "muon.momentum_warmup_steps": 27,
            "stop.seconds": 9.0,
        },
        "test",
    )
    short = shortened(base, SHARES[0]).config
    assert (short.stop.steps, short.stop.seconds) == (30, 1.0)
    assert (short.schedule.warmdown_steps, short.muon.momentum_warmup_steps) == (10, 3)
    assert shortened(base, 1.0) is base
