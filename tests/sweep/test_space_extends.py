"""One space file over another: what is merged, what is replaced, and in which file every value stands."""

import pathlib
from typing import Any

import pytest

from golfray.config.errors import ConfigError
from golfray.config.positions import parse_yaml
from golfray.sweep.extends import changed_entry, load_extended
from golfray.sweep.knobs import Choice, FloatRange, IntRange
from golfray.sweep.space import Space, load_space

PARENT = """\
name: parent
preset: parameter-golf
scale: laptop
budget: {trials: 12, minutes: 30}
seed: 5
fixed:
  model:
    num_layers: 2
  stop.seconds: 9
knobs:
  optimizer.matrix_lr: {low: 0.01, high: 0.1, log: true}
  muon.ns_steps: {low: 3, high: 6}
  muon.momentum_end: {low: 0.8, high: 0.99}
first_points:
- {optimizer.matrix_lr: 0.02}
- {optimizer.matrix_lr: 0.03}
scales:
  laptop:
    optimizer.matrix_lr: {high: 0.2}
    muon.ns_steps: {low: 4}
limits: {start: 100, score: 200}
"""


@pytest.fixture
def family(tmp_path: pathlib.Path):
    """Writes a parent in a folder of its own and a child beside that folder, and loads the child."""

    def load(child: str, parent: str = PARENT) -> Space:
        (tmp_path / "base").mkdir(exist_ok=True)
        (tmp_path / "base" / "parent.yaml").write_text(parent)
        (tmp_path / "child.yaml").write_text("extends: base/parent.yaml\n" + child)
        return load_space(tmp_path / "child.yaml", has_gpu=False)

    return load


def domains(space: Space) -> dict[str, Any]:
    return {knob.path: knob.domain for knob in space.knobs}


def test_a_child_that_says_nothing_is_its_parent(family, tmp_path: pathlib.Path) -> None:
    child = family("name: child\n")
    own, parents = child.to_dict(), load_space(tmp_path / "base" / "parent.yaml", has_gpu=False).to_dict()
    assert (own.pop("name"), parents.pop("name")) == ("child", "parent")
    assert own.pop("source") != parents.pop("source")
    assert own == parents


def test_single_values_and_lists_are_replaced_and_mappings_merged(family) -> None:
    space = family(
        "seed: 6\nbudget: {trials: 20}\nlimits: {score: 300}\nfirst_points: [{muon.ns_steps: 5}]\n"
        "fixed: {model.num_layers: 4, model.num_heads: 2}\n"
        "knobs:\n  muon.momentum_end: {high: 0.97, complement: true}\n  optimizer.scalar_lr: {low: 0.01, high: 0.02}\n"
    )
    assert (space.name, space.seed, space.budget.trials, space.budget.minutes) == ("parent", 6, 20, 30.0)
    assert (space.limits.start, space.limits.score) == (100, 300)
    assert space.first_points == ({"muon.ns_steps": 5},)
    assert space.fixed == {"model.num_layers": 4, "stop.seconds": 9.0, "model.num_heads": 2}
    assert domains(space) == {
        "optimizer.matrix_lr": FloatRange(0.01, 0.2, log=True),
        "muon.ns_steps": IntRange(4, 6),
        "muon.momentum_end": FloatRange(0.8, 0.97),
        "optimizer.scalar_lr": FloatRange(0.01, 0.02),
    }
    assert next(knob for knob in space.knobs if knob.path == "muon.momentum_end").complement


def test_null_takes_an_entry_of_the_budget_away(family) -> None:
    space = family("budget: {minutes: null}\n")
    assert (space.budget.trials, space.budget.minutes) == (12, None)


def test_null_removes_a_knob_at_every_scale(family) -> None:
    space = family("knobs: {muon.ns_steps: null}\n")
    assert list(domains(space)) == ["optimizer.matrix_lr", "muon.momentum_end"]
    assert space.base.config.muon.ns_steps == 5


def test_what_the_child_fixes_is_no_knob_and_the_other_way_round(family) -> None:
    space = family("fixed: {muon: {ns_steps: 3}}\nknobs: {model.num_layers: {choices: [2, 3]}}\n")
    assert "muon.ns_steps" not in domains(space)
    assert space.base.config.muon.ns_steps == 3
    assert domains(space)["model.num_layers"] == Choice((2, 3))
    assert space.fixed == {"stop.seconds": 9.0, "muon.ns_steps": 3}
    with pytest.raises(ConfigError, match=r"child\.yaml:2:21 fixed\.optimizer\.matrix_lr: is no knob any more"):
        family("fixed: {optimizer: {matrix_lr: 0.02}}\n")


def test_choices_replace_a_range_and_a_range_choices(family) -> None:
    space = family("knobs: {muon.ns_steps: {choices: [3, 5]}, muon.momentum_end: {choices: [0.9, 0.95]}}\n")
    assert domains(space)["muon.momentum_end"] == Choice((0.9, 0.95))
    # What the parent's scale changes about the range has gone with the range.
    assert domains(space)["muon.ns_steps"] == Choice((3, 5))
    entry = {"low": 1, "high": 2, "log": True, "at_preset": 1}
    assert changed_entry(entry, {"choices": [3]}) == {"at_preset": 1, "choices": [3]}
    assert changed_entry({"choices": [3], "at_preset": 1}, {"low": 1}) == {"at_preset": 1, "low": 1}


def test_scales_are_merged_knob_by_knob(family) -> None:
    space = family("scales: {laptop: {optimizer.matrix_lr: {low: 0.015}}}\n")
    assert domains(space)["optimizer.matrix_lr"] == FloatRange(0.015, 0.2, log=True)
    assert domains(space)["muon.ns_steps"] == IntRange(4, 6)
    # The child's range leaves out what the parent's first points have.
    with pytest.raises(ConfigError, match=r"parent\.yaml:15:4 first_points\.0\.optimizer\.matrix_lr: must be in 0\.05"):
        family("scales: {laptop: {optimizer.matrix_lr: {low: 0.05}}}\n")


def test_what_a_scale_of_the_parent_overrules_is_said(family) -> None:
    space = family("knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.05}}\n")
    assert domains(space)["optimizer.matrix_lr"] == FloatRange(0.02, 0.2, log=True)
    (note,) = space.notes
    assert "child.yaml:2: high of optimizer.matrix_lr has no effect at scale laptop" in note
    assert "base/parent.yaml:19 gives another one" in note
    assert note in space.describe()


def test_every_value_has_the_place_in_the_file_where_it_stands(family) -> None:
    space = family("fixed: {model.num_heads: 2}\nknobs: {muon.momentum_end: {low: 0.7}}\n")
    child, parent = space.source, space.source.replace("child", "base/parent")
    origins = space.base.origins
    assert origins["model.num_heads"] == f"{child}:2"
    assert origins["model.num_layers"] == f"{parent}:8"
    assert space.places["muon.momentum_end"] == (f"{child}:3",)
    assert space.places["optimizer.matrix_lr"] == (f"{parent}:11", f"{parent}:19")


def test_positions_of_what_was_replaced_are_gone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "parent.yaml").write_text(PARENT)
    child = tmp_path / "child.yaml"
    child.write_text("extends: base/parent.yaml\nfirst_points: [{muon.ns_steps: 5}]\n")
    document = load_extended(child)
    points = {path for path in document.positions if path.startswith("first_points")}
    assert points == {"first_points", "first_points.0", "first_points.0.muon.ns_steps"}
    assert {document.positions[path].source for path in points} == {str(child)}
    alone = parse_yaml(PARENT, "p").values
    assert document.values["knobs"] == alone["knobs"]


def test_a_file_without_extends_is_itself(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PARENT)
    assert load_extended(path) == parse_yaml(PARENT, str(path))


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("a: [1\n", r"base/parent\.yaml:2:1: not valid YAML"),
        ("", r"child\.yaml:1:1 extends: .*base/parent\.yaml is empty"),
        ("fixed: 3\n", r"base/parent\.yaml:1:1 fixed: must be a mapping"),
        ("fixed: {muon.ns_stepps: 3}\n", r"base/parent\.yaml:1:9 fixed\.muon\.ns_stepps: unknown setting"),
        ("knobs: 3\n", r"base/parent\.yaml:1:1 knobs: must be a mapping"),
        ("scales: {laptop: 3}\n", r"base/parent\.yaml:1:10 scales\.laptop: must be a mapping"),
        ("knobs: {muon.ns_steps: 3}\n", r"base/parent\.yaml:1:9 knobs\.muon\.ns_steps: must be a mapping"),
        ("first_points: {a: 1}\n", r"base/parent\.yaml:1:1 first_points: must be a list"),
        ("budget: 3\n", r"base/parent\.yaml:1:1 budget: must be a mapping"),
    ],
)
def test_a_parent_of_a_wrong_shape_is_named(family, parent: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        family("", parent)


@pytest.mark.parametrize("value", ["", "3", "[a.yaml]", "null"])
def test_a_parent_is_a_path(tmp_path: pathlib.Path, value: str) -> None:
    (tmp_path / "child.yaml").write_text(f"extends: {value}\n")
    with pytest.raises(ConfigError, match=r"child\.yaml:1:1 extends: must be the path of another space file"):
        load_extended(tmp_path / "child.yaml")


def test_a_parent_with_an_endless_name_is_refused_where_it_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "child.yaml").write_text(f"extends: {'x' * 5000}\n")
    with pytest.raises(ConfigError, match=r"child\.yaml:1:1 extends: cannot be read: File name too long"):
        load_extended(tmp_path / "child.yaml")
