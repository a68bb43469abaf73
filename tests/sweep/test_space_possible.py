"""What can be known, before anything starts, of values that can never run."""

import itertools
from typing import Any

import pytest

from golfray.config.errors import ConfigError
from golfray.config.resolve import resolve
from golfray.sweep import possible
from golfray.sweep.knobs import Choice, Condition, FloatRange, IntRange, Knob
from golfray.sweep.possible import impossible_values

BASE = resolve("parameter-golf", "laptop", has_gpu=False)

HEAD = """\
name: a
preset: parameter-golf
scale: laptop
budget: {trials: 4}
"""


def found(*knobs: Knob) -> dict[str, tuple[Any, ...]]:
    return {each.knob.path: each.values for each in impossible_values(knobs, BASE.config)}


def allowed(values: dict[str, Any]) -> bool:
    try:
        BASE.with_values(values, "test")
    except ConfigError:
        return False
    return True


def test_it_is_what_trying_every_combination_says() -> None:
    heads, width, kv = IntRange(1, 9), Choice((64, 90, 96)), Choice((1, 2, 3, 5))
    knobs = (Knob("model.num_heads", heads), Knob("model.model_dim", width), Knob("model.num_kv_heads", kv))
    values = {"model.num_heads": range(1, 10), "model.model_dim": width.choices, "model.num_kv_heads": kv.choices}
    runs = [
        point
        for point in (dict(zip(values, each, strict=True)) for each in itertools.product(*values.values()))
        if allowed(point)
    ]
    never = {
        path: tuple(value for value in own if not any(point[path] == value for point in runs))
        for path, own in values.items()
    }
    assert found(*knobs) == {path: own for path, own in never.items() if own}
    assert never["model.num_heads"] == (7,)


def test_one_knob_alone_is_tried_with_what_the_preset_has() -> None:
    assert found(Knob("model.num_heads", IntRange(2, 8))) == {"model.num_heads": (3, 5, 7)}
    assert found(Knob("model.num_heads", Choice((2, 4)))) == {}
    assert found(Knob("batch.tokens", IntRange(1024, 4096, step=1024))) == {}
    assert found(Knob("batch.tokens", IntRange(1000, 2000, step=500))) == {"batch.tokens": (1000, 1500, 2000)}
    assert found(Knob("optimizer.matrix_lr", FloatRange(0.01, 0.1))) == {}


def test_numbers_that_only_chance_could_meet() -> None:
    (all_of_it,) = impossible_values([Knob("model.mlp_mult", FloatRange(1.0, 4.0))], BASE.config)
    assert all_of_it.all_values
    assert found(Knob("model.mlp_mult", FloatRange(1.0, 4.0, step=0.5))) == {}
    assert found(Knob("model.mlp_mult", FloatRange(1.0, 2.0, step=0.01))).keys() == {"model.mlp_mult"}


def test_a_bound_and_a_condition_count() -> None:
    heads = Knob("model.num_heads", IntRange(2, 8), at_most="model.num_kv_heads", preset_value=4)
    kv = Knob("model.num_kv_heads", IntRange(2, 2 + 1), preset_value=2)
    # Of 2 to 8 heads only 2 and 3 are ever applied, and both run.
    assert found(heads, kv) == {}
    conditional = Knob("model.num_heads", Choice((5, 7)), preset_value=4, when=(Condition("model.num_layers", (2,)),))
    (known,) = impossible_values([conditional, Knob("model.num_layers", IntRange(2, 4))], BASE.config)
    assert known.values == (5, 7)
    assert not known.all_values


def test_what_has_too_many_combinations_is_left_to_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(Knob("batch.tokens", IntRange(1, 2**40))) == {}
    monkeypatch.setattr(possible, "MOST_COMBINATIONS", 6)
    assert found(Knob("model.num_heads", IntRange(2, 8))) == {}


def test_values_of_a_range_are_said_and_choices_refused(space_at) -> None:
    space = space_at(HEAD + "knobs: {model.num_heads: {low: 2, high: 8}}\n")
    (note,) = space.notes
    assert note == (
        "model.num_heads: 3, 5, 7 can never run: num_kv_heads must divide num_heads (3), got 2; "
        "such trials are refused as they come"
    )
    assert note in space.describe()
    scales = "scales: {laptop: {model.num_heads: {choices: [2, 5]}}}\n"
    with pytest.raises(
        ConfigError, match=r"5:\d+ scales\.laptop\.model\.num_heads\.choices\.1: 5 can never run"
    ) as caught:
        space_at(HEAD + scales + "knobs: {model.num_heads: {low: 2, high: 8}}\n")
    assert caught.value.line == 5


def test_what_a_fixed_setting_makes_impossible_is_found(space_at) -> None:
    knobs = "knobs: {model.num_heads: {choices: [3, 5]}}\n"
    with pytest.raises(ConfigError, match="no value in it is possible"):
        space_at(HEAD + knobs)
    assert space_at(HEAD + knobs + "fixed: {model.model_dim: 120, model.num_kv_heads: 1}\n").notes == ()
