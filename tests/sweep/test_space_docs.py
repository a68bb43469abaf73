"""docs/space_file.md names every field, gives the limits as they are, and its examples are space files."""

import pathlib
import re

import pytest
from pydantic import BaseModel

from golfray.sweep.knobs import Condition
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.space import load_space
from golfray.sweep.space_file import Budget, KnobEntry, Limits, Nodes, SpaceFile, field_names

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "space_file.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("model", [SpaceFile, KnobEntry, Budget, Limits, Nodes])
def test_every_field_is_there(model: type[BaseModel]) -> None:
    assert [name for name in field_names(model) if f"`{name}`" not in TEXT] == []


def test_the_limits_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (\d+|null) \|", TEXT, re.MULTILINE))
    assert {name: None if limit == "null" else float(limit) for name, limit in table.items()} == vars(PhaseLimits())


@pytest.mark.parametrize("has_gpu", [True, False], ids=["full", "laptop"])
def test_the_examples_are_space_files(tmp_path: pathlib.Path, has_gpu: bool) -> None:
    (tmp_path / "muon.yaml").write_text((ROOT / "search_spaces" / "muon.yaml").read_text())
    spaces = {}
    for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL):
        path = tmp_path / "example.yaml"
        path.write_text(text)
        space = load_space(path, has_gpu=has_gpu)
        layers = space.base.config.model.num_layers
        spaces[space.name] = {knob.path: knob for knob in space.knobs}
    assert spaces.keys() == {"decay", "muon-longer"}
    assert spaces["decay"]["muon.weight_decay"].when[0] == Condition("muon.ns_steps", (5, 6))
    longer = spaces["muon-longer"]
    # What the example changes it changes at either scale.
    parent = load_space(tmp_path / "muon.yaml", has_gpu=has_gpu)
    assert {knob.path: knob for knob in parent.knobs}["export.bits_mlp"].domain.low == 4
    assert (longer["export.bits_mlp"].domain.low, longer["export.bits_mlp"].domain.high) == (5, 8)
    assert parent.base.config.model.num_layers != 6 == layers
    assert "export.bits_embedding" not in longer
