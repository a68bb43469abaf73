"""One-sided tests and sample sizes against published values and closed forms."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.sweep.significance import (
    Noise,
    Sample,
    known_noise,
    paired,
    pool,
    runs_against,
    runs_per_side,
    sample_of,
    student_above,
    welch,
)

# The upper 5, 1 and .5 % points of Student's distribution, from its published tables.
POINTS = [
    (1, 6.314, 0.05),
    (2, 2.920, 0.05),
    (5, 2.015, 0.05),
    (5, 3.365, 0.01),
    (10, 2.764, 0.01),
    (30, 2.750, 0.005),
    (120, 2.617, 0.005),
]


@pytest.mark.parametrize(("df", "t", "p"), POINTS)
def test_tables_of_students_distribution(df, t, p):
    assert student_above(t, df) == pytest.approx(p, rel=2e-3)


@given(st.floats(-50, 50))
def test_closed_forms_of_one_and_two_degrees_of_freedom(t):
    assert student_above(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, abs=1e-12)
    assert student_above(t, 2) == pytest.approx(0.5 - t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


@given(st.floats(-30, 30), st.floats(0.3, 1e6))
def test_it_is_a_symmetric_tail(t, df):
    assert student_above(t, df) + student_above(-t, df) == pytest.approx(1)
    assert student_above(t + 0.5, df) <= student_above(t, df)


def test_many_degrees_of_freedom_are_the_normal_distribution():
    assert student_above(2.0, 1e7) == pytest.approx(1 - statistics.NormalDist().cdf(2.0), rel=1e-5)


def test_no_degrees_of_freedom_are_refused():
    with pytest.raises(ValueError, match="df > 0"):
        student_above(1.0, 0)


def test_the_p_value_by_which_the_top_row_was_admitted():
    # The record and its reproduction, on six seeds, against the compliance rerun of the row before: p = .188.
    top = [1.05989454, 1.06124613, 1.06208695, 1.05965, 1.06041, 1.06124]
    rerun = [1.06083, 1.06091, 1.06249]
    test = welch(sample_of(top), sample_of(rerun))
    assert test is not None
    assert round(test.p, 3) == 0.188


def test_the_test_that_a_record_itself_reports():
    # R23's submission.json against R21: t 11.83 with 3.31 degrees of freedom. R21's SD is known to two digits.
    test = welch(sample_of([1.11508120, 1.11437394, 1.11475014]), Sample(3, 1.11937967, 0.00058))
    assert test is not None
    assert (test.t, test.df) == (pytest.approx(11.8339, rel=5e-3), pytest.approx(3.3063, rel=5e-3))


def test_welch_of_equal_samples_is_students():
    # With equal variances and sizes the degrees of freedom are 2 (n - 1).
    test = welch(Sample(4, 1.0, 0.1), Sample(4, 1.2, 0.1))
    assert test is not None
    assert (test.t, test.df) == (pytest.approx(0.2 / (0.1 * math.sqrt(0.5))), pytest.approx(6))


@given(st.floats(0.5, 3), st.floats(-0.01, 0.01))
def test_the_unit_does_not_matter(factor, margin):
    one, other = Sample(3, 1.061, 0.0011), Sample(6, 1.0614, 0.0007)
    plain, scaled = welch(one, other, margin), welch(one.scaled(factor), other.scaled(factor), margin * factor)
    assert plain is not None
    assert scaled is not None
    assert scaled.p == pytest.approx(plain.p, rel=1e-6)


def test_a_margin_makes_it_harder_and_one_run_impossible():
    one, other = Sample(3, 1.0, 0.01), Sample(3, 1.1, 0.01)
    assert welch(one, other, 0.05).p > welch(one, other).p  # type: ignore[union-attr]
    assert welch(Sample(1, 1.0, None), other) is None
    assert welch(Sample(3, 1.0, 0.0), Sample(3, 1.1, 0.0)) is None
    assert known_noise(Sample(1, 1.0, None), other, Noise(0.01, 71)).p < 1e-9


def test_how_often_equal_configurations_pass():
    # p < .25 is what a quarter of all claims between equals get.
    draw = random.Random(3)
    tests = [
        welch(sample_of([draw.gauss(0, 1) for _ in range(3)]), sample_of([draw.gauss(0, 1) for _ in range(3)]))
        for _ in range(600)
    ]
    passed = sum(test is not None and test.p < 0.25 for test in tests)
    assert passed / 600 == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 600))


def test_differences_seed_by_seed():
    # The example of Student's own paper (1908): ten patients, mean 1.58 hours of sleep gained, SD 1.23, t 4.06.
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    test = paired([-hours for hours in gained])
    assert test is not None
    assert (round(test.t, 2), test.df, round(test.p, 4)) == (4.06, 9, 0.0014)
    assert paired([0.1]) is None
    assert paired([0.1, 0.1]) is None


def test_pooled_noise_weighs_by_degrees_of_freedom():
    noise = pool([Sample(3, 1.0, 0.1), Sample(6, 2.0, 0.2), Sample(1, 3.0, None)])
    assert noise is not None
    assert (noise.df, noise.sd) == (7, pytest.approx(math.sqrt((2 * 0.01 + 5 * 0.04) / 7)))
    assert pool([Sample(1, 1.0, None)]) is None
    assert pool([Sample(3, 1.0, 0.0)]) is None


def test_the_sample_sizes_of_the_8_gpu_runs():
    # One-sided alpha .01, power .8, pooled SD .00077.
    assert [runs_per_side(effect, 0.00077, 0.01, 0.8) for effect in (0.003, 0.002, 0.001, 0.0005)] == [2, 3, 12, 48]
    assert runs_per_side(0.0, 0.00077, 0.01, 0.8) is None


@given(st.floats(1e-4, 0.01), st.integers(1, 40))
def test_a_side_that_cannot_be_run_again_costs_more_or_cannot_be_made_up_for(effect, others):
    both, alone = runs_per_side(effect, 0.00077, 0.01, 0.8), runs_against(effect, 0.00077, 0.01, 0.8, others)
    assert both is not None
    if others < both:
        assert alone is None or alone >= both
    else:
        assert alone is not None
        assert alone <= both


def test_the_sample_size_has_the_power_that_it_promises():
    runs = runs_per_side(0.001, 0.00077, 0.01, 0.8)
    assert runs is not None
    draw, noise = random.Random(1), Noise(0.00077, 100_000)
    shown = 0
    for _ in range(600):
        means = [draw.gauss(mean, 0.00077 / math.sqrt(runs)) for mean in (0.0, 0.001)]
        shown += known_noise(Sample(runs, means[0], None), Sample(runs, means[1], None), noise).p < 0.01
    assert shown / 600 == pytest.approx(0.8, abs=0.065)
