"""The schema of space files accepts what golfray reads and refuses what it refuses, as far as a schema can say it."""

import pathlib
import textwrap
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from golfray.config.errors import ConfigError
from golfray.config.positions import load_yaml, parse_yaml
from golfray.sweep.space import load_space
from golfray.sweep.space_file import KnobEntry, SpaceFile, field_names
from golfray.sweep.space_schema import searchable_paths, space_schema

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = space_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

HEAD = "name: a\npreset: parameter-golf\nscale: laptop\nbudget: {trials: 4}\n"
KNOBS = "knobs: {muon.ns_steps: {low: 3, high: 6}}\n"

# What only reading the file can tell: numbers against each other, names against names, rules, other files.
BEYOND_A_SCHEMA = {
    "a knob given twice",
    "a setting given twice in two spellings",
    "a setting that is a knob and fixed",
    "ends the wrong way round",
    "a logarithm from zero",
    "a step that does not fit",
    "a range that is wrong only at the scale that is not used",
    "a range that another machine would not find",
    "a condition on itself",
    "a condition that never holds",
    "a condition on one number of a range",
    "conditions in a circle",
    "heads that do not divide the width",
    "key/value heads that do not divide the heads",
    "a batch that cannot be cut",
    "workers that do not share the slices",
    "a choice that no other knob makes possible",
    "a knob without a possible value",
    "a first point that is impossible",
    "a first point outside its range",
    "a first point between two steps",
    "a first point that is none of the choices",
    "a first point that sets what is not searched there",
    "a first point above its bound",
    "a first point outside the range that another machine would take",
    "a scale floor where bits vary",
    "seeds that run out",
    "an endless limit",
    "text that is no YAML",
}


def wrong_spaces() -> list[Any]:
    text = (ROOT / "tests" / "config" / "wrong_inputs.yaml").read_text(encoding="utf-8")
    snapshot = YAML(typ="safe").load(text)
    return [
        pytest.param(case.get("whole") or snapshot["head"] + case["space"], id=case["case"])
        for case in snapshot["cases"]
        if ("space" in case or "whole" in case) and "sets" not in case and "extends" not in case.get("space", "")
    ]


WRONG = wrong_spaces()


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", ["search_spaces/muon.yaml", "docs/laptop_ranges/space.yaml"])
def test_the_files_of_this_repository_are_accepted(file: str) -> None:
    VALIDATOR.validate(load_yaml(ROOT / file).values)


@pytest.mark.parametrize("text", [case for case in WRONG if case.id not in BEYOND_A_SCHEMA])
def test_what_golfray_refuses_is_refused(text: str) -> None:
    assert not VALIDATOR.is_valid(parse_yaml(text, "space.yaml").values)


def test_what_is_beyond_it_exists_and_is_the_smaller_part() -> None:
    names = {case.id for case in WRONG}
    assert names >= BEYOND_A_SCHEMA
    assert len(BEYOND_A_SCHEMA) < len(names) / 1.5


GOOD = {
    "the least": KNOBS,
    "every kind of knob": """
        knobs:
          optimizer.matrix_lr: {low: 0.01, high: 1, log: true, or_zero: true}
          muon.momentum_end: {low: 0.8, high: 0.99, log: true, complement: true}
          muon.momentum_start: {low: 0.4, high: 0.9, at_most: muon.momentum_end}
          model.num_layers: {low: 2, high: 8, step: 2, when: {muon.ns_dtype: float32, model.tie_embeddings: [true]}}
          model.tie_embeddings: {choices: [true, false]}
          muon.ns_dtype: {choices: [bfloat16, float32]}
          muon.momentum_warmup_share: {choices: [null, 0.5]}
        """,
    "scales that complete a range": """
        knobs: {muon.ns_steps: {log: true}}
        scales: {laptop: {muon.ns_steps: {low: 3, high: 6}}, full: {muon.ns_steps: {low: 3, high: 5}}}
        """,
    "everything else": """
        knobs: {muon.ns_steps: {low: 3, high: 6}}
        workers: 1
        seed: 3
        sampler: random
        replicates: 1
        fixed: {stop: {seconds: 3, steps: null}, optimizer.grad_clip: 1}
        first_points: [{muon.ns_steps: 4}]
        limits: {train: null, start: 30}
        """,
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_golfray_reads_is_accepted(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(HEAD + textwrap.dedent(text))
    load_space(path, has_gpu=False)
    VALIDATOR.validate(load_yaml(path).values)


BAD = {
    "no range": "knobs: {muon.ns_steps: {log: true}}",
    "half a range": "knobs: {muon.ns_steps: {low: 3}}",
    "a removed knob of no parent": "knobs: {muon.ns_steps: null}",
    "a fraction of an integer": "knobs: {muon.ns_steps: {low: 2.5, high: 4}}",
    "true for a number": "knobs: {optimizer.matrix_lr: {low: true, high: 4}}",
    "steps of nothing": "knobs: {muon.ns_steps: {low: 2, high: 4, step: 0}}",
    "the distance of an integer from 1": "knobs: {muon.ns_steps: {low: 2, high: 4, complement: true}}",
    "one choice": "knobs: {muon.ns_dtype: {choices: [float32]}}",
    "a point without a knob": KNOBS + "first_points: [{}]",
    "a point of a setting that is never a knob": KNOBS + "first_points: [{workers: 2}]",
    "an override of what is chosen at the start": KNOBS + "fixed: {preset: parameter-golf}",
    "an override out of bounds": KNOBS + "fixed: {export: {bits_mlp: 33}}",
    "no worker": KNOBS + "workers: 0",
    "no seed at all": KNOBS + "seed: -1",
    "too many replicates": KNOBS + "replicates: 1001",
    "a parent without a name": KNOBS + "extends: null",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_both_refuse(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(HEAD + text + "\n")
    with pytest.raises(ConfigError):
        load_space(path, has_gpu=False)
    assert not VALIDATOR.is_valid(load_yaml(path).values)


def test_a_child_says_only_what_differs() -> None:
    for child in (
        "extends: muon.yaml",
        "extends: muon.yaml\nknobs: {muon.weight_decay: null, optimizer.matrix_lr: {high: 0.2}}\nbudget: {minutes: 5}",
    ):
        VALIDATOR.validate(parse_yaml(child, "child.yaml").values)
    for child in ("extends: muon.yaml\nknob: {}", "extends: muon.yaml\nknobs: {muon.ns_steps: {low: 0}}", "seed: 3"):
        assert not VALIDATOR.is_valid(parse_yaml(child, "child.yaml").values)


def test_every_field_is_described() -> None:
    assert sorted(SCHEMA["properties"]) == field_names(SpaceFile)
    assert all(field["description"] for field in SCHEMA["properties"].values())
    for path in searchable_paths():
        knob = SCHEMA["$defs"][f"knob {path}"]
        assert knob["description"]
        assert all(field["description"] for field in knob["properties"].values())
    assert sorted(SCHEMA["$defs"]["knob optimizer.matrix_lr"]["properties"]) == field_names(KnobEntry)
