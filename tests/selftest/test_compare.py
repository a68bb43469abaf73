"""Tolerances as vector files write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.selftest.compare import FieldTolerances, Tolerance, parse_tolerance
from golfray.selftest.errors import SelftestError


def misses(forms: dict, got: dict, expected: dict) -> list[str]:
    return [deviation.field for deviation in FieldTolerances(forms, "tol.x").compare(got, expected) if not deviation.ok]


@pytest.mark.parametrize(
    ("form", "within", "beyond"),
    [
        ("exact", 200.0, 200.00000001),
        ({"rel": 0.01}, 201.9, 202.1),
        ({"abs": 0.5}, 199.6, 199.4),
        ({"rel": 0.001, "abs": 0.5}, 200.4, 200.6),
        ({"rel": 0.01, "abs": 0.5}, 201.9, 202.1),
    ],
)
def test_each_form_has_its_limit(form, within: float, beyond: float) -> None:
    assert misses({"a": form}, {"a": within}, {"a": 200.0}) == []
    assert misses({"a": form}, {"a": beyond}, {"a": 200.0}) == ["a"]


def test_positions_have_their_own_tolerance() -> None:
    forms = {"a": [{"first": 2, "rel": 1e-6}, {"rest": True, "rel": 0.1}]}
    assert misses(forms, {"a": [1.0, 1.05, 1.05, 1.2]}, {"a": [1.0, 1.0, 1.0, 1.0]}) == ["a[1]", "a[3]"]


def test_innermost_field_decides_and_star_is_every_other() -> None:
    forms = {"*": "exact", "norm": {"abs": 0.1}}
    expected = {"sum": 3, "deep": [{"norm": 1.0, "name": "x"}]}
    assert misses(forms, {"sum": 3, "deep": [{"norm": 1.05, "name": "x"}]}, expected) == []
    assert misses(forms, {"sum": 4, "deep": [{"norm": 1.2, "name": "y"}]}, expected) == [
        "sum",
        "deep[0].norm",
        "deep[0].name",
    ]


def test_structure_must_agree() -> None:
    forms = {"*": {"abs": 100.0}}
    assert misses(forms, {"a": {"x": 1}}, {"a": {"x": 1, "y": 1}}) == ["a.y"]
    assert misses(forms, {"a": {"x": 1, "y": 1}}, {"a": {"x": 1}}) == ["a.y"]
    assert misses(forms, {"a": [1, 2]}, {"a": [1]}) == ["a (length)"]
    assert misses(forms, {"a": "1"}, {"a": 1}) == ["a"]
    assert misses(forms, {"a": 1}, {"a": {"x": 1}}) == ["a"]
    assert misses(forms, {"a": True}, {"a": 1}) == ["a"]


def test_not_a_number_never_passes() -> None:
    for tolerance in (Tolerance(), Tolerance(rel=1.0), Tolerance(abs=1e9), Tolerance(rel=1.0, abs=1e9)):
        error, allowed, _ = tolerance.judge(math.nan, 1.0)
        assert error == math.inf
        assert not error <= allowed
    assert misses({"a": {"rel": 0.5}}, {"a": 1e-30}, {"a": 0.0}) == ["a"]


@pytest.mark.parametrize(
    "form",
    ["close", 0.1, {}, {"rel": -1.0}, {"rel": True}, {"rel": 1.0, "x": 1}, [], [{"rel": 1.0}], [{"first": 0}], None],
)
def test_unknown_forms_are_refused(form) -> None:
    with pytest.raises(SelftestError, match=r"tol\.x"):
        parse_tolerance(form, "tol.x")


def test_a_field_without_tolerance_is_refused() -> None:
    with pytest.raises(SelftestError, match=r"field b has no tolerance"):
        misses({"a": "exact"}, {"b": 1}, {"b": 1})
    with pytest.raises(SelftestError, match=r"position 1"):
        misses({"a": [{"first": 1, "rel": 1.0}]}, {"a": [1, 1]}, {"a": [1, 1]})


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 10), st.floats(0, 1))
def test_both_limits_is_whichever_is_wider(got: float, expected: float, limit: float, share: float) -> None:
    def ok(tolerance: Tolerance) -> bool:
        error, allowed, _ = tolerance.judge(got, expected)
        return error <= allowed

    wide, narrow = ok(Tolerance(rel=share, abs=limit)), abs(got - expected) <= max(limit, share * abs(expected))
    assert wide == narrow
