"""Conditions on knobs, from the file to the trial: what an inactive knob is in the settings and for the sampler."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.config.errors import ConfigError
from golfray.report.numbers import knob_paths, knob_value, value_text
from golfray.sweep.knobs import (
    Choice,
    CircularConditions,
    Condition,
    FloatRange,
    IntRange,
    Knob,
    OutOfRange,
    dependency_order,
    params_at,
    values_at,
)
from golfray.sweep.points import planned_points
from golfray.sweep.records import StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.study import Study
from golfray.sweep.study_folder import create_study_folder
from golfray.sweep.trial_record import FIRST_POINT, PRESET, PRESET_8BIT, SAMPLER
from golfray.tracking.projection import knob_range, trial_params

SPACE = """\
name: conditional
preset: parameter-golf
scale: laptop
budget: {trials: 14}
replicates: 1
seed: 3
fixed: {cap_bytes: 290000}
knobs:
  muon.weight_decay: {low: 0.005, high: 0.15, log: true, or_zero: true, when: {muon.ns_steps: [5, 6]}}
  muon.ns_steps: {low: 3, high: 6}
  optimizer.adam_weight_decay: {low: 0.01, high: 0.1, when: {muon.weight_decay: 0, optimizer.adam_fused: false}}
  optimizer.adam_fused: {choices: [true, false]}
  export.bits_mlp: {low: 4, high: 8}
"""


def test_an_inactive_knob_is_as_the_preset_has_it_and_no_parameter(space_at) -> None:
    space = space_at(SPACE)
    shut = {"muon.ns_steps": 4, "optimizer.adam_fused": True, "export.bits_mlp": 5}
    assert space.overrides(shut) == shut
    config = space.at(shut).config
    assert (config.muon.ns_steps, config.muon.weight_decay, config.optimizer.adam_weight_decay) == (4, 0.0, 0.0)
    assert space.at(shut).origins["muon.weight_decay"] == space.base.origins["muon.weight_decay"]
    decay = {"muon.weight_decay": 0.1, "muon.weight_decay > 0": True}
    open_ = {**shut, "muon.ns_steps": 5, **decay, "optimizer.adam_fused": False}
    assert space.at(open_).config.muon.weight_decay == 0.1
    # The second condition is on a value that is the preset's wherever the first does not hold.
    both = {**shut, "optimizer.adam_fused": False, "optimizer.adam_weight_decay": 0.05}
    assert space.at(both).config.optimizer.adam_weight_decay == 0.05


def test_conditions_are_described_and_logged(space_at) -> None:
    space = space_at(SPACE)
    assert (
        "muon.weight_decay: 0 or 0.005..0.15 (log) where muon.ns_steps is 5 or 6, trial 0 at 0.0"
        in space.describe_knobs()
    )
    knobs = space.to_dict()["knobs"]
    assert knobs["muon.weight_decay"]["when"] == {"muon.ns_steps": [5, 6]}
    assert knobs["optimizer.adam_weight_decay"]["when"] == {
        "muon.weight_decay": [0.0],
        "optimizer.adam_fused": [False],
    }
    assert knobs["muon.ns_steps"]["when"] == {}
    assert knob_range(knobs["muon.weight_decay"]).endswith("when={'muon.ns_steps': [5, 6]}")


def test_a_scale_changes_or_removes_a_condition(space_at) -> None:
    for change, expected in (
        ("null", ()),
        ("{muon.ns_steps: 3}", (Condition("muon.ns_steps", (3,)),)),
    ):
        space = space_at(SPACE + f"scales: {{laptop: {{muon.weight_decay: {{when: {change}}}}}}}\n")
        assert next(knob for knob in space.knobs if knob.path == "muon.weight_decay").when == expected


def test_planned_points_of_a_conditional_space(space_at) -> None:
    more = """\
    first_points:
    - {muon.ns_steps: 3}
    - {muon.ns_steps: 3, muon.weight_decay: 0.0}
    """
    points = planned_points(space_at(SPACE, more.replace("    ", "")))
    assert [point.role for point in points] == [PRESET, PRESET_8BIT, FIRST_POINT, FIRST_POINT]
    preset, _, few, the_same = points
    assert preset.told
    assert preset.params["muon.weight_decay > 0"] is False
    assert few.told
    assert "muon.weight_decay" not in few.params
    assert the_same.params == few.params


@pytest.fixture
def studied(space_at, synthetic, tmp_path: Path) -> tuple[Any, StudyRecord]:
    """A whole study of the space with two lanes, and the space."""
    space = space_at(SPACE)
    folder = create_study_folder(tmp_path / "study")
    study = Study(space, synthetic(slots=2), folder, bytes_code=50_000, uniform_bpb=4.0, data={})
    study.run()
    return space, StudyRecord.load(folder)


def test_a_study_runs_and_its_log_rebuilds_the_sampler(studied) -> None:
    space, record = studied
    sampled = [trial for trial in record.trials if trial.role == SAMPLER]
    assert len(sampled) == 12
    assert {"muon.weight_decay" in trial.params for trial in sampled} == {True, False}
    assert all(("muon.weight_decay" in trial.params) == (trial.params["muon.ns_steps"] >= 5) for trial in sampled)
    assert all(
        trial.settings["muon"]["weight_decay"] == 0.0 for trial in sampled if "muon.weight_decay" not in trial.params
    )
    last = record.trials.pop()
    rebuilt = StudySampler(space.knobs, kind="tpe", seed=3, cap_bytes=record.cap_bytes, uniform_bpb=4.0)
    rebuilt.restore(record)
    # Two lanes: when the last trial was asked, the one before it was still running.
    assert rebuilt.suggest(last.number).keys() >= {"muon.ns_steps", "optimizer.adam_fused", "export.bits_mlp"}


def test_tables_and_tracking_take_a_trial_that_lacks_a_parameter(studied) -> None:
    _, record = studied
    paths = knob_paths(record)
    for trial in record.trials:
        values = [knob_value(trial, path) for path in paths]
        assert None not in values
        assert all(value_text(value) != "-" for value in values)
        assert {f"knob/{path}" for path in paths} <= trial_params(trial, paths).keys()


def knob(path: str, when: tuple[Condition, ...] = (), **fields: Any) -> Knob:
    return Knob(path, IntRange(0, 3), preset_value=1, when=when, **fields)


def test_dependency_order_is_the_order_of_the_file_where_nothing_depends() -> None:
    plain = [knob("c"), knob("a"), knob("b")]
    assert dependency_order(plain) == plain
    a, b, c = knob("a", (Condition("c", (1,)),)), knob("b"), knob("c", (Condition("b", (1,)),))
    assert dependency_order([a, b, c]) == [b, c, a]


def test_circles_are_named() -> None:
    a, b = knob("a", (Condition("b", (1,)),)), knob("b", (Condition("c", (1,)),))
    with pytest.raises(CircularConditions, match="b depends on c depends on b") as caught:
        dependency_order([a, b, knob("c", (Condition("b", (1,)),))])
    assert caught.value.paths == ("b", "c", "b")


def test_the_bound_of_a_knob_that_is_inactive_is_its_preset_value() -> None:
    space = [
        Knob("start", FloatRange(0.0, 1.0), at_most="end", preset_value=0.5),
        Knob("end", FloatRange(0.5, 1.0), preset_value=0.6, when=(Condition("on", (True,)),)),
        Knob("on", Choice((False, True)), preset_value=False),
    ]
    assert values_at(space, {"start": 0.9, "on": False}) == {"start": 0.6, "on": False}
    assert values_at(space, {"start": 0.9, "end": 0.8, "on": True}) == {"start": 0.8, "end": 0.8, "on": True}
    with pytest.raises(OutOfRange, match="searched only where on is true"):
        params_at(space, {"start": 0.1, "end": 0.7, "on": False})


@st.composite
def forests(draw: st.DrawFn) -> list[Knob]:
    """Knobs that depend only on knobs made before them, in any order."""
    knobs: list[Knob] = []
    for index in range(draw(st.integers(1, 6))):
        subjects = draw(st.lists(st.sampled_from(knobs), max_size=2, unique_by=lambda each: each.path)) if knobs else []
        when = tuple(
            Condition(each.path, tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))) for each in subjects
        )
        knobs.append(knob(f"k{index}", when))
    return draw(st.permutations(knobs))


@given(forests(), st.data())
def test_values_to_params_and_back(knobs: list[Knob], data: st.DataObject) -> None:
    values: dict[str, int] = {}
    for each in dependency_order(knobs):
        values[each.path] = data.draw(st.integers(0, 3)) if each.is_active(values) else 1
    params = params_at(knobs, values)
    assert values_at(knobs, params) == {path: values[path] for path in params}
    assert params.keys() == {each.path for each in knobs if each.is_active(values)}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ("muon.ns_steps: {low: 3, high: 6, when: 5}", "knobs.muon.ns_steps.when: must be a mapping of names to values"),
        ("muon.ns_steps: {low: 3, high: 6, when: {}}", "knobs.muon.ns_steps.when: is empty"),
        (
            "muon.momentum_start: {low: 0.5, high: 0.9, step: 0.1, at_most: muon.momentum_end}\n"
            "  muon.momentum_end: {low: 0.5, high: 0.9, step: 0.1}\n"
            "  muon.ns_steps: {low: 3, high: 6, when: {muon.momentum_start: 0.5}}",
            "knobs.muon.ns_steps.when.muon.momentum_start: has at_most, so its value is not its own",
        ),
        (
            "muon.weight_decay: {low: 0.01, high: 0.1, or_zero: true}\n"
            "  muon.ns_steps: {low: 3, high: 6, when: {muon.weight_decay: 0.05}}",
            "is never 0.05: it is searched over 0 or 0.01..0.1; of a range of numbers no single value can be named",
        ),
    ],
)
def test_conditions_that_cannot_be(space_at, knobs: str, message: str) -> None:
    head = SPACE.partition("knobs:")[0]
    with pytest.raises(ConfigError) as caught:
        space_at(f"{head}knobs:\n  {knobs}\n")
    assert message in str(caught.value)


def test_a_step_a_zero_and_the_preset_of_a_conditional_knob_can_be_named(space_at) -> None:
    head = SPACE.partition("knobs:")[0]
    space = space_at(
        head
        + """\
knobs:
  muon.momentum_end: {low: 0.7, high: 0.9, step: 0.1}
  muon.weight_decay: {low: 0.01, high: 0.1, or_zero: true, when: {muon.momentum_end: 0.8}}
  model.num_layers: {low: 4, high: 6, when: {muon.weight_decay: 0}}
  muon.ns_steps: {low: 3, high: 6, when: {model.num_layers: 3}}
"""
    )
    # 3 layers are the preset's: the range begins at 4, and it is there wherever weight decay is on.
    on = {"muon.weight_decay": 0.05, "muon.weight_decay > 0": True}
    assert space.overrides({"muon.momentum_end": 0.7 + 0.1, **on, "muon.ns_steps": 6}) == {
        "muon.momentum_end": 0.7 + 0.1,
        "muon.weight_decay": 0.05,
        "muon.ns_steps": 6,
    }
