import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.sweep.statistics import SeedNoise, expected_best_of, expected_luck, seed_noise


# Expected largest of k standard normals: k = 2 is 1/sqrt(pi), k = 3 is 1.5/sqrt(pi); the rest from published tables of
# normal order statistics.
@pytest.mark.parametrize(
    ("k", "expected"),
    [
        (1, 0.0),
        (2, 1 / math.sqrt(math.pi)),
        (3, 1.5 / math.sqrt(math.pi)),
        (5, 1.16296),
        (10, 1.53875),
        (20, 1.86748),
        (100, 2.50759),
        (1000, 3.24144),
    ],
)
def test_expected_best_of_known_values(k: int, expected: float) -> None:
    assert expected_best_of(k) == pytest.approx(expected, abs=1e-5)


def test_expected_best_of_is_exact_where_a_closed_form_exists() -> None:
    assert expected_best_of(2) == pytest.approx(1 / math.sqrt(math.pi), abs=1e-12)
    assert expected_best_of(4) == pytest.approx(6 / math.pi**1.5 * math.atan(math.sqrt(2)), abs=1e-12)


@given(st.integers(1, 10**6))
def test_expected_best_of_grows_and_stays_below_its_bound(k: int) -> None:
    assert expected_best_of(k) < expected_best_of(k + 1) <= math.sqrt(2 * math.log(k + 1))


def test_expected_best_of_agrees_with_draws() -> None:
    draw = random.Random(5)
    best = [max(draw.gauss(0, 1) for _ in range(12)) for _ in range(20_000)]
    assert statistics.fmean(best) == pytest.approx(expected_best_of(12), abs=5 * statistics.stdev(best) / 20_000**0.5)


def test_expected_best_of_refuses_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="k >= 1"):
        expected_best_of(0)


def test_luck_of_the_8_gpu_runs() -> None:
    # .00077 BPB of noise: the best of 10, 30, 100, 300 equal trials gains .0012, .0016, .0019, .0022.
    noise = SeedNoise(0.00077, 72)
    assert [round(expected_luck(noise, k), 4) for k in (10, 30, 100, 300)] == [0.0012, 0.0016, 0.0019, 0.0022]


def test_noise_has_n_minus_1_in_its_divisor() -> None:
    noise = seed_noise([1.0, 1.1, 1.2])
    assert noise.sd == pytest.approx(0.1)
    assert noise.runs == 3
    assert str(noise) == "0.1000 BPB (SD over 3 seeds)"


def test_noise_of_one_run_is_unknown() -> None:
    assert seed_noise([1.0]).sd is None
    assert str(seed_noise([])) == "noise unknown"
    assert expected_luck(seed_noise([1.0]), 12) is None
