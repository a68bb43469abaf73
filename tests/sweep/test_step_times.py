"""Milliseconds of a step of the same work on different nodes."""

import dataclasses

import pytest

from golfray.core.settings import RunSettings
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.step_times import step_times, work_key
from tests.report.scripted import Script
from tests.sweep.test_node_probe import node

SETTINGS = dataclasses.asdict(RunSettings())


def changed(path, value):
    section, _, name = path.partition(".")
    return {**SETTINGS, section: {**SETTINGS[section], name: value}}


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("optimizer.matrix_lr", 0.1, True),
        ("schedule.warmdown_share", 0.9, True),
        ("export.bits_mlp", 4, True),
        ("runtime.seed", 7, True),
        ("muon.momentum_end", 0.9, True),
        ("model.num_layers", 7, False),
        ("batch.tokens", 262_144, False),
        ("runtime.compile", "off", False),
        ("muon.ns_steps", 9, False),
    ],
)
def test_which_settings_are_the_same_work(path, value, same):
    assert (work_key(changed(path, value)) == work_key(SETTINGS)) is same


def played(*trials):
    """A study of trials as (nodes, ms a step, layers)."""
    script = Script()
    script.start(trials=len(trials))
    for nodes, ms, layers in trials:
        number = script.ask(model__num_layers=layers)
        script.submit(number, nodes=[one.to_dict() for one in nodes])
        metrics = {} if ms is None else {"train/step_ms": ms}
        script.end(number, Outcome(Kind.DIVERGED, "as played", metrics))
    return StudyRecord.from_events(script)


A, B = node("a"), node("b")


def test_a_median_for_each_place_and_work():
    record = played(([A], 40.0, 9), ([B], 50.0, 9), ([A], 44.0, 9), ([A], 42.0, 9), ([A, B], 30.0, 9), ([B], 70.0, 12))
    nine, twelve = step_times(record)
    a, b = (("a", A.address),), (("b", B.address),)
    assert nine.ms == {a: {0: 40.0, 2: 44.0, 3: 42.0}, b: {1: 50.0}, (*a, *b): {4: 30.0}}
    assert nine.median(a) == 42.0
    # Against 50 and 30.
    assert nine.times(a) == pytest.approx(42 / 40)
    assert twelve.ms == {b: {5: 70.0}}
    assert twelve.times(b) is None


def test_what_tells_nothing_is_left_out():
    assert step_times(played(([], 40.0, 9), ([A], None, 9))) == []
