"""Whatever stands in a space file, it is read, or refused in one line that names a file."""

import copy
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golfray.config.errors import ConfigError
from golfray.config.positions import load_yaml
from golfray.sweep.points import planned_points
from golfray.sweep.space import load_space

MUON = pathlib.Path(__file__).parents[2] / "search_spaces" / "muon.yaml"

FILE: dict[str, Any] = {
    **load_yaml(MUON).values,
    "fixed": {"model": {"num_layers": 2}},
    "first_points": [{"optimizer.matrix_lr": 0.03}],
    "limits": {"start": 5},
}
FILE["knobs"] = {**FILE["knobs"], "muon.ns_steps": {"choices": [3, 5], "when": {"export.bits_mlp": [5, 6]}}}

NAMES = ["extends", "when", "choices", "low", "at_most", "step", "or_zero", "model.num_heads", "batch.tokens", "zzz"]
VALUES = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2**63 - 1, 1e308, 5e-324, 0.5, "", "x", "..", "\0", "auto"]),
    st.sampled_from([[], {}, [None], [5, 6], {"low": 1, "high": 2}, {"choices": [0.25, 0.5]}, {"muon.ns_steps": 3}]),
    st.sampled_from(["muon.ns_steps", "optimizer.matrix_lr", "parent.yaml"]),
)


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """The file with one to three values replaced, removed or added."""
    values = copy.deepcopy(FILE)
    for _ in range(draw(st.integers(1, 3))):
        *above, key = draw(st.sampled_from(list(places(values))))
        home: Any = values
        for part in above:
            home = home[part]
        what = draw(st.sampled_from(["replace", "remove", "add"]))
        if what == "replace" or isinstance(home, list):
            home[key] = copy.deepcopy(draw(VALUES))
        elif what == "remove":
            del home[key]
        else:
            home[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(VALUES))
        if not values:
            return values
    return values


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parent=changed(), child=changed(), is_extended=st.booleans(), has_gpu=st.booleans())
def test_it_is_read_or_refused(
    parent: dict[str, Any], child: dict[str, Any], is_extended: bool, has_gpu: bool, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "parent.yaml").write_text(json.dumps(parent))
    (tmp_path / "space.yaml").write_text(json.dumps({**child, "extends": "parent.yaml"} if is_extended else child))
    space = refusal = None
    try:
        space = load_space(tmp_path / "space.yaml", has_gpu=has_gpu)
    except ConfigError as error:
        refusal = error
    if refusal is not None:
        assert refusal.file is not None
        assert "\n" not in str(refusal)
        return
    assert space is not None
    assert json.loads(json.dumps(space.to_dict(), allow_nan=False)) == space.to_dict()
    assert space.describe()
    assert planned_points(space)
