import copy
import json
from pathlib import Path
from typing import Any

import pytest

import golfray
from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer
from golfray.sweep.points import planned_points
from golfray.sweep.records import StudyRecord
from golfray.sweep.resume import trials_outside
from golfray.sweep.sampler import StudySampler
from golfray.sweep.space_diff import allowed_changes, changes_since
from golfray.sweep.space_record import space_of

FOLDER = Path("studies/small")
DATA = {"folder": "/data/a", "name": "a", "reference": {"uniform": 4.0, "xz": 2.5}, "warning": "demo"}
FACTS: dict[str, Any] = {"bytes_code": 50_000, "data": DATA}

EVERYTHING = """\
name: everything
preset: parameter-golf
scale: laptop
budget: {trials: 14, minutes: 2.5}
seed: 11
sampler: random
replicates: 2
fixed: {cap_bytes: 290000, stop.seconds: 7}
first_points: [{optimizer.matrix_lr: 0.1, export.bits_mlp: 5}]
limits: {train: 99}
nodes: {mirror: /nvme/golfray, mirror_gb: 20}
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}
  optimizer.beta1: {low: 0.5, high: 0.9, step: 0.1}
  muon.momentum_end: {low: 0.8, high: 0.99, log: true, complement: true}
  muon.momentum_start: {low: 0.6, high: 0.95, at_most: muon.momentum_end}
  muon.weight_decay: {low: 0.005, high: 0.15, log: true, or_zero: true}
  export.bits_mlp: {low: 4, high: 8}
  model.num_heads: {choices: [2, 4, 8]}
  model.num_kv_heads: {choices: [1, 2], when: {model.num_heads: [4, 8], export.bits_mlp: [5, 6, 7]}}
"""


_RAN: list[StudyRecord] = []


@pytest.fixture
def study(make) -> StudyRecord:
    """A study of the small space that has run, once for all these tests."""
    if not _RAN:
        _RAN.append(make(data=DATA).run())
    return copy.deepcopy(_RAN[0])


def lines(record: StudyRecord, space, **facts: Any) -> list[str]:
    return [str(change) for change in changes_since(record, space, **{**FACTS, **facts})]


def test_the_space_that_the_log_has_is_the_space(make, space_at) -> None:
    space = space_at(EVERYTHING)
    record = make(EVERYTHING).run()
    rebuilt = space_of(record, "studies/everything/events.jsonl")
    assert trials_outside(space, record) == trials_outside(rebuilt, record) == []
    assert {trial.role for trial in record.trials if trial.told} == {"preset", "preset_8bit", "first_point", "sampler"}
    assert json.loads(json.dumps(rebuilt.to_dict())) == rebuilt.to_dict() == space.to_dict()
    assert (rebuilt.knobs, rebuilt.base.config) == (space.knobs, space.base.config)
    assert rebuilt.nodes == space.nodes
    assert (rebuilt.limits, rebuilt.budget.trials, rebuilt.budget.minutes) == (space.limits, 14, 2.5)
    points, own = planned_points(rebuilt), planned_points(space)
    assert [(point.params, point.resolved.config) for point in points] == [
        (point.params, point.resolved.config) for point in own
    ]
    samplers = [
        StudySampler(one.knobs, kind=one.sampler, seed=one.seed, cap_bytes=290_000, uniform_bpb=4.0)
        for one in (space, rebuilt)
    ]
    for number in range(20):
        one, other = (sampler.suggest(number) for sampler in samplers)
        assert one == other
        assert space.overrides(one) == rebuilt.overrides(other)
    assert rebuilt.base.origins["cap_bytes"] == "studies/everything/events.jsonl"
    assert lines(record, rebuilt, data=record.header["data"]) == []
    assert (
        lines(
            StudyRecord.from_events([{"event": "study_started", "time": 0, "seq": 0, **record.header}]),
            space,
            data=record.header["data"],
        )
        == []
    )


def test_set_lies_over_what_the_log_fixes(study: StudyRecord) -> None:
    space = space_of(study, "log", [Layer.from_sets(["data.folder=/data/b"])])
    assert space.base.config.data.folder == "/data/b"
    assert lines(study, space, data={**DATA, "folder": "/data/b"}) == ['data.folder: "/data/a" -> "/data/b"']


def test_a_tokenizer_stays_with_its_folder(make, small: str) -> None:
    """A study has both of its corpus; who names another folder means that one's tokenizer, or names it too."""
    text = small.replace("fixed: {", "fixed: {data.folder: /data/a, data.tokenizer: /data/a/t.model, ")
    record = make(text, data=DATA).run()

    def data_of(*sets: str) -> tuple[str, str]:
        data = space_of(record, "log", [Layer.from_sets(sets)]).base.config.data
        return data.folder, data.tokenizer

    assert data_of() == ("/data/a", "/data/a/t.model")
    assert data_of("data.folder=/data/b") == ("/data/b", "")
    assert data_of("data.folder=/data/b", "data.tokenizer=/t.model") == ("/data/b", "/t.model")
    assert data_of("data.tokenizer=/t.model") == ("/data/a", "/t.model")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("trials: 12", "trials: 20", ["budget.trials: 12 -> 20"]),
        ("{trials: 12}", "{trials: 12, minutes: 30}", ["budget.minutes: none -> 30.0"]),
        ("low: 0.02,", "low: 0.01,", ["knobs.optimizer.matrix_lr.low: 0.02 -> 0.01"]),
        (
            "  export.bits_mlp: {low: 4, high: 8}\n",
            "",
            ["knobs.export.bits_mlp: 4..8 -> none"],
        ),
        (
            "at_most: muon.momentum_end}",
            "step: 0.05}",
            [
                "knobs.muon.momentum_start.step: none -> 0.05",
                'knobs.muon.momentum_start.at_most: "muon.momentum_end" -> none',
            ],
        ),
        (
            "seed: 3\n",
            "seed: 3\nsampler: random\nreplicates: 5\n",
            [
                'sampler: "tpe" -> "random"',
                "replicates: 3 -> 5",
            ],
        ),
        ("seed: 3\n", "seed: 3\nlimits: {score: 60}\n", ["limits.score: 1800.0 -> 60.0"]),
        (
            "seed: 3\n",
            "seed: 3\nfirst_points: [{export.bits_mlp: 7}]\n",
            ['first_points: [] -> [{"export.bits_mlp": 7}]'],
        ),
    ],
)
def test_one_line_a_change_that_may_be(study, space_at, small, old: str, new: str, found: list[str]) -> None:
    assert old in small
    changes = changes_since(study, space_at(small.replace(old, new)), **FACTS)
    assert [str(change) for change in changes] == found
    with pytest.raises(ConfigError) as caught:
        allowed_changes(changes, FOLDER, allow=False)
    assert str(caught.value) == (
        "studies/small: the study in it differs from what would go on now:\n"
        + "".join(f"  {line}\n" for line in found)
        + "--allow-changes goes on with what there is now, and the log keeps these lines"
    )
    assert allowed_changes(changes, FOLDER, allow=True) == found


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("name: small", "name: large", 'name: "small" -> "large"'),
        ("seed: 3", "seed: 4", "seed: 3 -> 4"),
        ("290000", "300000", "fixed.cap_bytes: 290000 -> 300000"),
        ("{cap_bytes: 290000}", "{cap_bytes: 290000, stop.steps: 5}", "fixed.stop.steps: none -> 5"),
        ("{cap_bytes: 290000}", "{cap_bytes: 290000, runtime.seed: 5}", "fixed.runtime.seed: none -> 5"),
        ("seed: 3", "seed: 3\nworkers: 1", "workers: 2 -> 1"),
    ],
)
def test_what_would_make_another_study_is_refused_even_where_changes_are_allowed(
    study, space_at, small, old: str, new: str, found: str
) -> None:
    changes = changes_since(study, space_at(small.replace(old, new)), **FACTS)
    with pytest.raises(ConfigError, match="holds another study than this") as caught:
        allowed_changes(changes, FOLDER, allow=True)
    assert f"\n  {found}\n" in str(caught.value)
    assert caught.value.exit_code == 2


def test_another_scale_is_another_study(study, space_at, small) -> None:
    full = space_at(small.replace("scale: laptop", "scale: full"))
    assert 'scale: "laptop" -> "full"' in lines(study, full)


def test_the_version_the_script_and_the_place_of_the_data_are_named(study, space_at, small, monkeypatch) -> None:
    monkeypatch.setattr(golfray, "__version__", "9.9.9")
    moved = {**DATA, "folder": "/data/b", "name": "b", "warning": "other words"}
    version = study.header["golfray_version"]
    changes = changes_since(study, space_at(small), bytes_code=50_001, data=moved)
    assert allowed_changes(changes, FOLDER, allow=True) == [
        "bytes_code: 50000 -> 50001",
        f'golfray_version: "{version}" -> "9.9.9"',
        'data.folder: "/data/a" -> "/data/b"',
        'data.name: "a" -> "b"',
    ]


def test_other_data_are_refused(study, space_at, small) -> None:
    other = {**DATA, "reference": {"uniform": 4.0, "xz": 2.4}}
    with pytest.raises(ConfigError, match=r"data\.reference\.xz: 2\.5 -> 2\.4"):
        allowed_changes(changes_since(study, space_at(small), **{**FACTS, "data": other}), FOLDER, allow=True)


def test_what_only_one_version_says_of_data_is_no_change(study, space_at, small) -> None:
    for more in ({**DATA, "contaminated": False}, {name: DATA[name] for name in ("folder", "name", "reference")}):
        assert lines(study, space_at(small), data=more) == []


def test_a_preset_that_golfray_changed_is_refused(study, space_at, small) -> None:
    """As a newer version might: the space is the same, trial 0 would not be."""
    study.trials[0].settings["schedule"]["warmdown_share"] = 0.45
    (change,) = changes_since(study, space_at(small), **FACTS)
    assert str(change) == "config.schedule.warmdown_share: 0.45 -> 0.4"
    assert not change.may_be


def test_the_same_knobs_in_another_order_are_drawn_otherwise(study, space_at, small) -> None:
    first = "  export.bits_attention: {low: 5, high: 8}\n"
    moved = space_at(small.replace(first, "") + first)
    (line,) = lines(study, moved)
    assert line == 'order of knobs: "export.bits_attention" -> "export.bits_mlp"'


def test_a_log_of_the_first_version_compares_with_what_it_has(study, space_at, small) -> None:
    old = dict(study.header["space"])
    for name in ("preset", "scale", "budget", "limits"):
        del old[name]
    old["knobs"] = {path: {k: v for k, v in knob.items() if k != "when"} for path, knob in old["knobs"].items()}
    study.header["space"] = old
    assert lines(study, space_at(small)) == []
    assert space_of(study, "log").to_dict() == {**space_at(small).to_dict(), "source": old["source"]}
    assert lines(study, space_at(small.replace("trials: 12", "trials: 13"))) == ["budget.trials: 12 -> 13"]


@pytest.mark.parametrize("setting", ["muon.weight_decay: 0.0", "optimizer.adam_fused: false"])
def test_a_fixed_zero_that_is_gone_is_a_change(make, space_at, setting: str) -> None:
    text = "name: a\npreset: parameter-golf\nscale: laptop\nbudget: {trials: 1}\nreplicates: 1\n"
    knob = "knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.1}}\n"
    record = make(f"{text}fixed: {{{setting}}}\n{knob}", data=DATA).run()
    (line,) = lines(record, space_at(text + knob))
    assert line == f"fixed.{setting} -> none"
