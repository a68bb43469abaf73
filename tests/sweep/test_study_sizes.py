"""Studies that refuse what cannot fit: real configurations, real predictions, outcomes of a synthetic law."""

from __future__ import annotations

import dataclasses
import math

import pytest
from optuna.trial import TrialState

from golfray.core.settings import settings_from_dict
from golfray.sweep.choosing import best_feasible
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.size import expected_bytes_model
from golfray.sweep.study_folder import create_study_folder
from golfray.sweep.trial_record import FIRST_POINT, PRESET, PRESET_8BIT, REPLICATE, SAMPLER
from golfray.sweep.verdict import BYTES_OVER_CAP, DIVERGED, verdict_on
from tests.sweep.conftest import BYTES_CODE, FIDELITY

TINY = """\
  model.num_layers: 2
  model.model_dim: 32
  model.num_heads: 2
  model.num_kv_heads: 1
  model.vocab_size: 320
  export.keep_float_max_numel: 256
"""
# With 50 kB of code 6 bits are about 81.3 kB by the law below, 8 bits 84.2 kB, 4 bits 77.7 kB.
SPACE = """\
name: sized
preset: parameter-golf
scale: laptop
budget: {{trials: 6}}
seed: 1
sampler: {sampler}
replicates: {replicates}
fixed:
  cap_bytes: {cap}
{tiny}knobs:
  optimizer.matrix_lr: {{low: 0.02, high: 0.16, log: true}}
  export.bits_mlp: {{low: 4, high: 8}}
  export.bits_attention: {{low: 4, high: 8}}
"""
STEPS = 150


def space_text(cap: int = 81_700, sampler: str = "random", replicates: int = 2, more: str = "") -> str:
    return SPACE.format(cap=cap, sampler=sampler, replicates=replicates, tiny=TINY) + more


def sized_law(settings: dict) -> Outcome:
    """Bytes as foreseen and two percent more, and a little by seed; a valley in the learning rate."""
    plain = settings_from_dict(settings)
    model = 1.02 * expected_bytes_model(plain, STEPS).bytes + 40 * math.sin(plain.runtime.seed)
    total = round(model) + plain.bytes_code
    bpb = 2.0 + math.log(plain.optimizer.matrix_lr / 0.06) ** 2 - 0.01 * plain.export.bits_mlp
    over = total > plain.cap_bytes
    return Outcome(
        kind=Kind.INFEASIBLE if over else Kind.SCORED,
        reason="by law",
        metrics={
            "bpb/roundtrip": bpb,
            "bytes/model": float(round(model)),
            "bytes/total": float(total),
            "bytes/margin": float(plain.cap_bytes - total),
            "train/steps": float(STEPS),
        },
        fidelity=FIDELITY,
    )


@pytest.fixture
def run(make, synthetic):
    def do(text: str, law=sized_law, **kwargs) -> StudyRecord:
        return make(text, executor=synthetic(law), **kwargs).run()

    return do


def test_points_that_cannot_fit_are_refused_and_cost_neither_time_nor_budget(make, synthetic) -> None:
    executor = synthetic(sized_law)
    record = make(space_text(), executor=executor).run()
    refused = [trial for trial in record.trials if trial.too_large]
    ran = [trial for trial in record.trials if not trial.too_large]
    assert len(refused) >= 2
    assert {trial.role for trial in refused} == {SAMPLER}
    # Six by the budget, and one more seed of the preset.
    assert len(ran) == 6 + 1
    assert len(executor.submitted) == len(ran)
    for trial in refused:
        assert trial.outcome.kind is Kind.INFEASIBLE
        assert trial.outcome.reason.startswith("refused before training: ")
        assert "over the cap of 81,700" in trial.outcome.reason
        assert trial.outcome.refused_margin < 0
        assert trial.bpb is None
        assert trial not in record.candidates
        assert trial.foreseen["fit_probability"] < 0.05


def test_what_runs_had_a_chance_and_nothing_that_would_have_fitted_is_refused(run) -> None:
    record = run(space_text())
    for trial in record.trials:
        if trial.role != SAMPLER:
            continue
        assert trial.too_large == (trial.foreseen["fit_probability"] < 0.05)
        if not trial.too_large:
            # The law is 2 % off the uncorrected estimate; what finished has corrected that.
            error = trial.foreseen["bytes/foreseen_total"] - trial.bytes_total
            assert abs(error) < 2.5 * trial.foreseen["bytes/foreseen_sd"]


def test_the_sampler_hears_of_a_refused_point_with_its_predicted_violation(make, synthetic) -> None:
    study = make(space_text(), executor=synthetic(sized_law))
    record = study.run()
    sampler = StudySampler(study._space.knobs, kind="random", seed=1, cap_bytes=81_700, uniform_bpb=4.0)
    sampler.restore(record)
    told = [trial for trial in record.trials if trial.told]
    for known, trial in zip(sampler.trials, told, strict=True):
        if trial.too_large:
            assert known.state is TrialState.COMPLETE
            assert known.value == 4.0
            violation = trial.foreseen["bytes/foreseen_total"] - 81_700
            assert known.constraints == {BYTES_OVER_CAP: violation, DIVERGED: 0.0}
        else:
            expected = trial.bytes_total + trial.size_reserve - 81_700
            assert known.constraints[BYTES_OVER_CAP] == pytest.approx(expected)


@pytest.mark.parametrize("sampler", ["random", pytest.param("tpe", marks=pytest.mark.slow)])
def test_a_study_that_was_cut_off_anywhere_refuses_the_same_points(make, synthetic, tmp_path, sampler) -> None:
    text = space_text(sampler=sampler)
    whole = make(text, executor=synthetic(sized_law), folder=create_study_folder(tmp_path / "whole"))
    expected = [(trial.params, trial.too_large, trial.size_reserve) for trial in whole.run().trials]
    lines = (whole.folder / "events.jsonl").read_text().splitlines(keepends=True)
    refusals = [number for number, text in enumerate(lines) if '"too_large":true' in text.replace(" ", "")]
    # Behind what was asked, before its end was written; and behind that.
    for cut in (refusals[0] + 1, refusals[0] + 2, len(lines) - 6):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / "events.jsonl").write_text("".join(lines[:cut]))
        record = make(text, executor=synthetic(sized_law), folder=folder).resume()
        assert [(trial.params, trial.too_large, trial.size_reserve) for trial in record.trials] == expected


def test_nothing_is_refused_before_a_run_has_told_how_many_steps_it_takes(run) -> None:
    record = run(space_text(replicates=1))
    assert [trial.foreseen for trial in record.trials[:1]] == [None]
    assert any(trial.foreseen for trial in record.trials[1:])


def test_a_run_without_steps_in_its_end_is_never_judged(run, law) -> None:
    record = run(space_text(), law=law)
    assert {trial.too_large for trial in record.trials} == {False}
    assert {trial.foreseen is None for trial in record.trials} == {True}


def test_sizes_of_shorter_runs_teach_nothing(run) -> None:
    def shorter(settings: dict) -> Outcome:
        """Stopped early: half the size, as far as it was told."""
        outcome = sized_law(settings)
        return dataclasses.replace(outcome, kind=Kind.STOPPED, reason="early", artifact=None)

    record = run(space_text(), law=shorter)
    assert {trial.too_large for trial in record.trials} == {False}


def test_what_a_person_asked_for_runs_unless_it_is_certain_not_to_fit(run) -> None:
    points = "first_points:\n  - {export.bits_mlp: 8, export.bits_attention: 8}\n  - {export.bits_mlp: 4}\n"
    record = run(space_text(replicates=1, more=points))
    eight = record.trials[1]
    assert eight.role == PRESET_8BIT
    # Unlikely to fit, as the sampler's would be refused, and run all the same.
    assert eight.foreseen["fit_probability"] < 0.05
    assert eight.outcome.kind is Kind.INFEASIBLE
    assert not eight.too_large
    assert record.trials[2].role == FIRST_POINT


def test_a_persons_point_that_is_certain_not_to_fit_is_refused_and_the_preset_never(run, monkeypatch) -> None:
    monkeypatch.setattr("golfray.sweep.agenda._TOO_LARGE_IN_A_ROW", 7)
    points = "first_points:\n  - {export.bits_mlp: 8, export.bits_attention: 8}\n"
    # A cap that the preset itself is far above: nothing fits, and the preset still measures the noise.
    record = run(space_text(cap=BYTES_CODE + 8_000, more=points))
    by_role = {role: [trial for trial in record.trials if trial.role == role] for role in (PRESET, REPLICATE, SAMPLER)}
    assert [trial.too_large for trial in by_role[PRESET] + by_role[REPLICATE]] == [False, False]
    first = next(trial for trial in record.trials if trial.role == PRESET_8BIT)
    assert first.too_large
    assert first.outcome.reason.startswith("refused before training: certain not to fit, about ")
    # In a space where nothing fits the study ends instead of asking for ever; no crash, so it is not given up.
    assert all(trial.too_large for trial in by_role[SAMPLER])
    assert len(by_role[SAMPLER]) == 7
    assert record.end_reason.startswith("7 points in a row cannot fit under the cap")
    assert (record.complete, record.hopeless, best_feasible(record)) == (False, False, None)


def test_what_was_refused_is_not_asked_again_by_whoever_resumes(make, synthetic, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("golfray.sweep.agenda._TOO_LARGE_IN_A_ROW", 2)
    points = "first_points:\n  - {optimizer.matrix_lr: 0.09, export.bits_mlp: 8}\n"
    text, folder = space_text(cap=BYTES_CODE + 8_000, more=points), create_study_folder(tmp_path / "again")
    before = make(text, executor=synthetic(sized_law), folder=folder).run()
    planned = [trial.role for trial in before.trials if trial.role != SAMPLER]
    assert [trial.role for trial in before.trials if trial.too_large] == [PRESET_8BIT, FIRST_POINT, SAMPLER, SAMPLER]
    assert all(trial.settings["cap_bytes"] == BYTES_CODE + 8_000 for trial in before.trials)
    executor = synthetic(sized_law)
    after = make(text, executor=executor, folder=folder).resume()
    assert [trial.role for trial in after.trials if trial.role != SAMPLER] == planned
    assert not executor.submitted


def test_the_reserve_is_told_and_comes_from_the_spread_between_seeds(run, tmp_path) -> None:
    calm, wild = (
        run(space_text(replicates=3, cap=10**6), law=law, folder=create_study_folder(tmp_path / law.__name__))
        for law in (sized_law, _wild)
    )
    reserves = [[trial.size_reserve for trial in record.trials if trial.role == SAMPLER] for record in (calm, wild)]
    assert all(len(own) == 6 - 2 and min(own) > 0 for own in reserves)
    assert min(reserves[1]) > 3 * max(reserves[0])
    # Its own size decides whether a trial may be best.
    assert all(trial.outcome.kind is Kind.SCORED for trial in wild.trials)


def _wild(settings: dict) -> Outcome:
    outcome = sized_law(settings)
    shift = 3000 * math.sin(31.0 * settings["runtime"]["seed"])
    metrics = {**outcome.metrics}
    for name in ("bytes/model", "bytes/total"):
        metrics[name] += shift
    return dataclasses.replace(outcome, metrics=metrics)


def test_a_verdict_counts_the_reserve_as_bytes() -> None:
    scored = Outcome(Kind.SCORED, "", {"bpb/roundtrip": 1.5, "bytes/total": 950.0})
    for reserve, over in ((0.0, -50.0), (80.0, 30.0)):
        verdict = verdict_on(scored, [], cap_bytes=1000, uniform_bpb=4.0, size_reserve=reserve)
        assert (verdict.value, verdict.constraints[BYTES_OVER_CAP]) == (1.5, over)


def test_an_infeasible_outcome_without_any_size_is_still_no_verdict() -> None:
    with pytest.raises(ValueError, match="finite bpb/roundtrip"):
        verdict_on(Outcome(Kind.INFEASIBLE, ""), [], cap_bytes=1000, uniform_bpb=4.0)
