import dataclasses

import pytest

from golfray.core.settings import (
    AveragingSettings,
    BatchSettings,
    EvaluationSettings,
    ExportSettings,
    RunSettings,
    StopSettings,
)
from golfray.sweep import costs
from golfray.sweep.costs import Costs, Work, contention, published_costs, rehearsed_costs, work_of
from golfray.sweep.rehearsal import Rehearsal


def work(**changes) -> Work:
    values = {
        "settings": RunSettings(),
        "workers": 8,
        "device": "cuda",
        "compiled": False,
        "shapes_vary": False,
        "parameters": 17_059_912,
        "val_tokens": 62_021_632,
    }
    return Work(**{**values, **changes})


def stopping(steps: int | None, seconds: float | None, log_points: int = 0) -> Work:
    settings = dataclasses.replace(RunSettings(), stop=StopSettings(steps, seconds))
    return work(
        settings=dataclasses.replace(settings, runtime=dataclasses.replace(settings.runtime, log_points=log_points))
    )


@pytest.mark.parametrize(
    ("steps", "seconds", "step_s", "taken", "train_s"),
    [
        (None, 15.0, 0.1, 150, 15.05),
        (100, None, 0.1, 100, 10.0),
        (100, 15.0, 0.1, 100, 10.05),
        (20_000, 600.0, 0.0435, 13_793, 600.02),
        # A step that takes longer than the run is made all the same.
        (None, 1.0, 10.0, 1, 6.0),
    ],
)
def test_steps_and_seconds_of_training(steps, seconds, step_s, taken, train_s) -> None:
    run = stopping(steps, seconds)
    assert run.steps(step_s) == taken
    assert run.train_s(step_s) == pytest.approx(train_s, abs=0.01)


def test_reports_take_time_too_but_no_more_often_than_steps() -> None:
    assert stopping(10, None, log_points=200).train_s(1.0) == pytest.approx(10 + 10 * costs.REPORT_S)
    assert stopping(1000, None, log_points=200).train_s(1.0) == pytest.approx(1000 + 200 * costs.REPORT_S)


def test_the_published_baseline_gives_its_own_speed() -> None:
    found = published_costs(work())
    assert found.steps == pytest.approx(13_780, rel=0.002)
    assert found.phases["train"] == pytest.approx(600, abs=3)
    assert any(source.startswith("not measured: 44 ms a step") for source in found.sources)
    # Half the workers take twice as long over everything that is shared.
    half = published_costs(work(workers=4))
    assert half.steps == pytest.approx(13_780 / 2, rel=0.002)
    assert half.phases["validate"] == pytest.approx(2 * found.phases["validate"])


def rehearsed(monkeypatch, run: Work, slowdown: float = 1.0, load: float = 0.0) -> Costs:
    """Costs of a rehearsal with known numbers on an otherwise idle machine of two CPUs."""
    found = Rehearsal(micro_s_per_token=1e-4, update_s=0.02, score_s_per_token=4e-5, slowdown=slowdown)
    monkeypatch.setattr(costs, "rehearse", lambda settings, workers, lanes: found)
    monkeypatch.setattr(costs.os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(costs.os, "sched_getaffinity", lambda pid: {0, 1})
    return rehearsed_costs(run, 1)


def laptop(**changes) -> Work:
    settings = dataclasses.replace(
        RunSettings(), stop=StopSettings(None, 15.0), batch=BatchSettings(tokens=2048, seq_len=128, slices=2)
    )
    values = {"settings": settings, "workers": 2, "device": "cpu", "val_tokens": 80_000, "parameters": 350_000}
    return work(**{**values, **changes})


def test_a_rehearsal_becomes_phases(monkeypatch) -> None:
    found = rehearsed(monkeypatch, laptop())
    step_s = 1e-4 * 1024 + 0.02
    assert found.steps == round(15 / step_s)
    assert found.phases["validate"] == found.phases["score"] == pytest.approx(40_000 * 4e-5)
    assert list(found.phases) == ["data", "compile", "train", "validate", "export", "score"]
    assert found.first_extra_s == 0.0
    assert found.trial_s == pytest.approx(sum(found.phases.values()) + found.handover_s)


def test_averages_and_sliding_windows_are_foreseen(monkeypatch) -> None:
    plain = rehearsed(monkeypatch, laptop())
    settings = dataclasses.replace(
        laptop().settings, averaging=AveragingSettings(method="ema"), evaluation=EvaluationSettings(sliding_stride=16)
    )
    found = rehearsed(monkeypatch, laptop(settings=settings))
    # The live weights are scored too; a window of 128 tokens scores 16 of them.
    assert found.phases["validate"] == pytest.approx(2 * plain.phases["validate"])
    assert found.phases["sliding"] == pytest.approx(8 * plain.phases["score"])
    assert list(found.phases) == [*plain.phases, "sliding"]
    short = dataclasses.replace(settings, evaluation=EvaluationSettings(sliding_stride=1, sliding_seconds=5.0))
    assert rehearsed(monkeypatch, laptop(settings=short)).phases["sliding"] == 5.0


def test_calibration_and_the_time_left_for_it_are_foreseen(monkeypatch) -> None:
    plain = rehearsed(monkeypatch, laptop())
    export = ExportSettings(format="flat", gptq=True, gptq_batches=16, gptq_reserve_seconds=3.0)
    found = rehearsed(monkeypatch, laptop(settings=dataclasses.replace(laptop().settings, export=export)))
    step_s = 1e-4 * 1024 + 0.02
    assert found.steps == round(12 / step_s)
    assert plain.phases["train"] - found.phases["train"] == pytest.approx(3.0, abs=0.3)
    # One rank goes through 16 micro-batches of 1,024 tokens, and multiplies as much again.
    assert found.phases["calibrate"] == pytest.approx(2 * 16 * 1024 * 4e-5)
    assert list(found.phases) == ["data", "compile", "train", "validate", "calibrate", "export", "score"]


def test_a_search_is_foreseen(monkeypatch) -> None:
    def searched(tries: int, **changes) -> dict[str, float]:
        export = ExportSettings(format="flat", search=tries)
        settings = dataclasses.replace(laptop().settings, export=export, **changes)
        return rehearsed(monkeypatch, laptop(settings=settings)).phases

    phases = searched(200)
    assert list(phases) == ["data", "compile", "train", "validate", "search", "export", "score"]
    # Thousands of sequences are scored, beside all that is compressed.
    assert phases["search"] > 3000 * laptop().settings.batch.seq_len * 4e-5 / 2
    assert searched(400)["search"] > 1.5 * phases["search"]


def test_compiled_steps_are_more_and_the_first_trial_waits_for_them(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(costs, "cache_folder", lambda: tmp_path)
    eager, compiled = rehearsed(monkeypatch, laptop()), rehearsed(monkeypatch, laptop(compiled=True))
    assert compiled.steps == pytest.approx(costs.COMPILED_SPEEDUP * eager.steps, rel=0.01)
    assert compiled.first_extra_s == pytest.approx(costs.COMPILE_NEW_S - costs.COMPILE_AGAIN_S)
    assert any("never compiled on this machine" in source for source in compiled.sources)
    monkeypatch.setattr(costs, "compiled_before", lambda settings, folder: True)
    known = rehearsed(monkeypatch, laptop(compiled=True))
    assert known.first_extra_s == pytest.approx(costs.COMPILE_FIRST_S - costs.COMPILE_AGAIN_S)


def test_where_shapes_vary_every_trial_compiles(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(costs, "cache_folder", lambda: tmp_path)
    found = rehearsed(monkeypatch, laptop(compiled=True, shapes_vary=True))
    assert found.phases["compile"] > costs.COMPILE_NEW_S
    assert found.first_extra_s == 0.0


def test_a_busy_machine_slows_all_but_the_training_time(monkeypatch) -> None:
    idle, busy = rehearsed(monkeypatch, laptop()), rehearsed(monkeypatch, laptop(), slowdown=8.0, load=14.0)
    for part in ("open_s", "lanes_s", "close_s"):
        assert getattr(busy, part) > 1.3 * getattr(idle, part)
    assert busy.steps < idle.steps
    assert busy.phases["train"] == pytest.approx(15, abs=1)
    assert any("others use this machine too" in source for source in busy.sources)


def test_contention_is_one_on_an_idle_machine_and_less_than_its_signs_elsewhere(monkeypatch) -> None:
    monkeypatch.setattr(costs.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(costs.os, "getloadavg", lambda: (0.1, 0.0, 9.0))
    assert contention(0.9, 2) == 1.0
    # Load 6 of others and two ranks on two CPUs: a fourth each. The lower of the two averages counts.
    monkeypatch.setattr(costs.os, "getloadavg", lambda: (8.0, 6.0, 0.0))
    assert 1 < contention(1.0, 2) < contention(2.0, 2) < contention(4.0, 2) < 4
    assert contention(4.0, 2) == pytest.approx(16**0.3)


SPACE = """\
name: small
preset: parameter-golf
scale: laptop
budget: {trials: 2}
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.16}
"""


@pytest.mark.parametrize(
    ("knob", "varies"),
    [
        ("", False),
        ("  model.num_layers: {low: 2, high: 4}\n", True),
        ("  model.qk_gain_init: {low: 1.0, high: 5.0}\n", False),
    ],
)
def test_work_is_read_off_the_space(space_at, knob, varies) -> None:
    space = space_at(SPACE + knob)
    found, fidelity = work_of(space, "cpu", val_tokens=1000, threads=1)
    assert (found.workers, found.device, found.val_tokens, found.shapes_vary) == (2, "cpu", 1000, varies)
    assert found.parameters == 348_396
    assert fidelity == {
        "device": "cpu",
        "dtype": "float32",
        "compiled": found.compiled,
        "workers": 2,
        "threads": 1,
        "stop": "wallclock",
    }
