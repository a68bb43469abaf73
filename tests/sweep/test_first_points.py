"""First points that the sampler could not have drawn are refused; those that it could are points of its space."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golfray.config.errors import ConfigError
from golfray.sweep.points import planned_points

HEAD = """\
name: a
preset: parameter-golf
scale: laptop
budget: {trials: 4}
replicates: 1
"""
MOMENTA = """\
knobs:
  muon.momentum_start: {low: 0.5, high: 0.95, at_most: muon.momentum_end}
  muon.momentum_end: {low: 0.8, high: 0.99, complement: true, log: true}
  muon.ns_steps: {low: 3, high: 6}
  muon.weight_decay: {low: 0.01, high: 0.1, or_zero: true, when: {muon.ns_steps: [5, 6]}}
"""

values = {
    "muon.momentum_start": st.floats(0.4, 1.0, exclude_max=True),
    "muon.momentum_end": st.floats(0.7, 1.0, exclude_max=True),
    "muon.ns_steps": st.integers(1, 8),
    "muon.weight_decay": st.just(0.0) | st.floats(0.0, 0.2),
}


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.fixed_dictionaries({}, optional=values).filter(bool))
def test_a_point_is_refused_or_the_sampler_hears_of_it(space_at, point) -> None:
    text = (
        HEAD + MOMENTA + "first_points:\n- {" + ", ".join(f"{path}: {value}" for path, value in point.items()) + "}\n"
    )
    refused, planned = None, []
    try:
        planned = planned_points(space_at(text))
    except ConfigError as error:
        refused = error
    if refused is None:
        assert planned[-1].told, planned[-1].told_reason
    else:
        assert refused.path in {f"first_points.0.{path}" for path in point}
        assert refused.line == 12


def test_a_bound_below_what_the_preset_has_needs_both(space_at) -> None:
    """The preset starts at 0.85: a run whose momentum falls is none that the space has."""
    with pytest.raises(ConfigError, match=r"first_points\.0\.muon\.momentum_end") as caught:
        space_at(HEAD + MOMENTA + "first_points: [{muon.momentum_end: 0.82}]\n")
    start = space_at(HEAD + MOMENTA).base.config.muon.momentum_start
    assert (
        caught.value.message == f"must be >= muon.momentum_start ({start}, as the preset has it), got 0.82; give both"
    )
    both = space_at(HEAD + MOMENTA + "first_points: [{muon.momentum_end: 0.82, muon.momentum_start: 0.6}]\n")
    assert planned_points(both)[-1].told


def test_what_a_point_leaves_out_may_lie_where_the_preset_has_it(space_at) -> None:
    """The preset's own rate is outside this range: trial 0 runs all the same, and so does a point beside it."""
    space = space_at(
        HEAD + "knobs: {optimizer.matrix_lr: {low: 0.05, high: 0.1}, muon.ns_steps: {low: 3, high: 6}}\n"
        "first_points: [{muon.ns_steps: 4}]\n"
    )
    planned = planned_points(space)[-1]
    assert not planned.told
    assert planned.told_reason == "optimizer.matrix_lr=0.04 is outside 0.05..0.1"


def test_a_scale_that_changes_a_range_is_the_one_that_counts(space_at) -> None:
    text = HEAD + "knobs: {muon.ns_steps: {low: 3, high: 6}}\nscales: {laptop: {muon.ns_steps: {high: 8}}}\n"
    assert space_at(text + "first_points: [{muon.ns_steps: 8}]\n").first_points == ({"muon.ns_steps": 8},)
