"""Curves as characters."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.report.sparkline import sparkline


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([7, 7, 0, 0], 2, "█▁"),
        ([3, 3, 3], 10, "▁▁▁"),
        ([1, math.nan, 3], 3, "▁!█"),
        ([math.inf, -math.inf], 1, "!"),
        ([], 5, ""),
    ],
)
def test_reference(values, width, drawn):
    assert sparkline(values, width) == drawn


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32)), st.integers(0, 70))
def test_as_wide_as_it_may_be_and_no_wider(values, width):
    assert len(sparkline(values, width)) == min(width, len(values))
