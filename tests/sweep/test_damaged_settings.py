"""Trials whose settings in the log lack something, or hold what no setting is: resumed as they were, or refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.events import LOG_NAME, EventLogError, decode_record, encode_record, read_events
from golfray.sweep.records import StudyRecord
from golfray.sweep.resume import trials_outside
from golfray.sweep.sampler import StudySampler
from golfray.sweep.space_diff import allowed_changes, changes_since
from golfray.sweep.space_record import space_of
from golfray.sweep.work_left import work_left

TEXT = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 3}
sampler: random
replicates: 2
fixed: {cap_bytes: 290000}
first_points: [{optimizer.matrix_lr: 0.1}]
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}
  export.bits_mlp: {low: 4, high: 8}
"""
# Sections and settings that every trial of this space has.
REFUSED_BY_ITSELF = {
    *(
        "optimizer",
        "optimizer.matrix_lr",
        "export",
        "export.bits_mlp",
        "export.scale_floor",
        "stop.steps",
        "stop.seconds",
    )
}
DATA = {"folder": "", "name": "synthetic", "reference": {"uniform": 4.0}, "warning": None}


@pytest.fixture
def events(make) -> list[dict[str, Any]]:
    """The log of a study whose last trials never ended."""
    study = make(TEXT)
    study.run()
    whole = list(read_events(study.folder / LOG_NAME))
    return whole[: next(index for index, event in enumerate(whole) if event.get("trial") == 3) + 3]


def resumed(events: list[dict[str, Any]]) -> list[str]:
    """What there is before a driver goes on; returns the changes."""
    record = StudyRecord.from_events([decode_record(encode_record(event)) for event in events])
    space = space_of(record, "log")
    changes = changes_since(record, space, bytes_code=50_000, data=DATA)
    work_left(space, record)
    assert trials_outside(space, record) == []
    return [str(change) for change in changes]


def asked(events: list[dict[str, Any]], number: int) -> dict[str, Any]:
    return next(event for event in events if event["event"] == "trial_asked" and event["trial"] == number)


def places(settings: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in settings.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, inner) for inner in value)


def without(events: list[dict[str, Any]], number: int, place: tuple[str, ...]) -> list[dict[str, Any]]:
    changed = copy.deepcopy(events)
    node = asked(changed, number)["settings"]
    for name in place[:-1]:
        node = node[name]
    del node[place[-1]]
    return changed


def test_the_log_as_it_is_can_be_resumed(events) -> None:
    assert resumed(events) == []


def test_what_a_later_trial_lacks_is_damage_in_its_line(events) -> None:
    line = asked(events, 3)["seq"] + 1
    for place in places(asked(events, 3)["settings"]):
        first = ".".join(place if len(place) == 2 else (place[0], "")).rstrip(".")
        with pytest.raises(EventLogError, match=rf"^events\.jsonl:{line}: damaged record \(settings\.{first}"):
            resumed(without(events, 3, place))


def test_what_trial_0_lacks_is_damage_in_its_line_or_another_study(events) -> None:
    """All that the log has lacks it: a log of another version, perhaps; a run would take a default instead."""
    own = asked(events, 0)["settings"]
    for place in list(places(own))[::3]:
        changed = events
        for number in range(4):
            changed = without(changed, number, place)
        path = ".".join(place)
        if path in REFUSED_BY_ITSELF:
            with pytest.raises(EventLogError, match=r"^events\.jsonl:\d+: damaged record \(settings\.\w+\.\w+: Field"):
                resumed(changed)
        elif place[0] in ("data", "bytes_code", "cap_bytes", "clock_trace"):
            assert resumed(changed) == []
        elif own[place[0]] is None or (len(place) == 2 and own[place[0]][place[1]] is None):
            assert resumed(changed) == [], "null is what a run takes for it"
        elif len(place) == 2:
            assert resumed(changed) == [f"config.{path}: none -> {json.dumps(own[place[0]][place[1]])}"]
        else:
            (change,) = resumed(changed)
            assert change.startswith(f"config.{path}: none -> ")


@pytest.mark.parametrize("value", [5, None, "x", [1], {"matrix_lr": [0.1]}, {"matrix_lr": {"low": 1}}, {}])
def test_what_is_no_section_is_damage_in_its_line(events, value: Any) -> None:
    asked(events, 2)["settings"]["optimizer"] = value
    line = asked(events, 2)["seq"] + 1
    with pytest.raises(EventLogError, match=rf"^events\.jsonl:{line}: damaged record \(settings\.optimizer"):
        resumed(events)


def test_what_this_version_does_not_know_is_another_study(events) -> None:
    for number in range(4):
        asked(events, number)["settings"]["optimizer"]["beta3"] = 0.5
        asked(events, number)["settings"]["mixer"] = {"depth": 3}
    assert resumed(events) == ["config.optimizer.beta3: 0.5 -> none", 'config.mixer: {"depth": 3} -> none']


def test_a_knob_that_is_new_and_that_old_settings_lack_keeps_them_from_the_sampler(events, space_at) -> None:
    for number in range(4):
        del asked(events, number)["settings"]["muon"]["ns_steps"]
    wider = space_at(TEXT + "  muon.ns_steps: {low: 3, high: 6, when: {export.bits_mlp: 8}}\n")
    record = StudyRecord.from_events(events)
    assert {entry["reason"] for entry in trials_outside(wider, record)} == {
        "muon.ns_steps is not among its settings",
        "has no value for muon.ns_steps",
    }
    with pytest.raises(ConfigError, match="holds another study"):
        allowed_changes(changes_since(record, wider, bytes_code=50_000, data=DATA), Path("studies/one"), allow=True)


@pytest.mark.parametrize(
    "change",
    [
        {"low": 1.0},
        {"low": float("nan")},
        {"high": float("inf")},
        {"low": 0.0},
        {"low": -1.0},
        {"step": 0.0},
        {"step": 1e300},
        {"type": "int"},
    ],
    ids=str,
)
def test_a_range_that_cannot_be_searched_is_damage_in_its_line(events, change: dict[str, Any]) -> None:
    events[0]["space"]["knobs"]["optimizer.matrix_lr"] |= change
    with pytest.raises(EventLogError, match=r"^events\.jsonl:1: damaged record \(space\.knobs\.optimizer\.matrix_lr"):
        resumed(events)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"optimizer.matrix_lr": 0.05}, "has no value for export.bits_mlp"),
        ({"optimizer.matrix_lr": "x", "export.bits_mlp": 6}, "optimizer.matrix_lr='x' is outside FloatRange("),
        ({"optimizer.matrix_lr": 0.05, "export.bits_mlp": 6, "x": 1}, "x is not searched here"),
    ],
)
def test_parameters_that_are_no_point_are_kept_from_the_sampler(events, params: dict[str, Any], reason: str) -> None:
    asked(events, 2)["params"] = params
    record = StudyRecord.from_events(events)
    (outside,) = trials_outside(space_of(record, "log"), record)
    assert outside["trial"] == 2
    assert outside["reason"].startswith(reason)


def test_a_switch_that_is_off_does_not_stand_for_the_number_beside_it(make, small) -> None:
    record = make(small).run()
    off = next(trial for trial in record.trials if trial.told and trial.params["muon.weight_decay > 0"] is False)
    del off.params["muon.weight_decay"]
    (entry,) = trials_outside(space_of(record, "log"), record)
    assert entry == {"trial": off.number, "reason": "has no value for muon.weight_decay"}


def test_a_score_without_a_number_is_a_failed_trial_for_the_sampler(make, small) -> None:
    record = make(small).run()
    record.trials[4].attempts[-1].outcome.metrics.pop("bytes/total")
    sampler = StudySampler(
        space_of(record, "log").knobs, kind="tpe", seed=3, cap_bytes=record.cap_bytes, uniform_bpb=4.0
    )
    sampler.restore(record)
    told = [trial for trial in record.trials if trial.told]
    states = dict(zip((trial.number for trial in told), (trial.state.name for trial in sampler.trials), strict=True))
    assert {number for number, state in states.items() if state == "FAIL"} == {4}


def test_one_step_of_a_tenth_is_a_range(events) -> None:
    """0.7 - 0.6 is a little less than 0.1."""
    change = {"low": 0.6, "high": 0.7, "log": False, "step": 0.1}
    events[0]["space"]["knobs"]["optimizer.matrix_lr"] |= change
    assert StudyRecord.from_events(events).name == "one"
