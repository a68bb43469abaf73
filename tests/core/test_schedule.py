"""Schedules as properties; their exact values are in the selftest vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.core.schedule import is_over, lr_multiplier, muon_momentum, run_progress
from golfray.core.settings import MuonSettings, ScheduleSettings, StopSettings

STEPS = StopSettings(steps=100, seconds=None)
SECONDS = StopSettings(steps=None, seconds=10.0)


@given(
    st.integers(0, 200), st.floats(0, 30), st.floats(0.01, 1.0), st.floats(0, 0.5), st.sampled_from([STEPS, SECONDS])
)
def test_share_multiplier_stays_between_floor_and_one(
    step: int, elapsed: float, share: float, floor: float, stop
) -> None:
    schedule = ScheduleSettings(warmdown_share=share, lr_floor=floor)
    multiplier = lr_multiplier(schedule, stop, step, elapsed)
    assert floor <= multiplier <= 1.0
    assert multiplier >= lr_multiplier(schedule, stop, step + 1, elapsed + 0.1)


@pytest.mark.parametrize(
    ("stop", "at"), [(STEPS, lambda share: (round(100 * share), 3.0)), (SECONDS, lambda share: (3, 10 * share))]
)
def test_share_multiplier_at_known_points(stop, at) -> None:
    schedule = ScheduleSettings(warmdown_share=0.4)
    for progress, expected in ((0.0, 1.0), (0.6, 1.0), (0.8, 0.5), (1.0, 0.0), (1.1, 0.0)):
        assert lr_multiplier(schedule, stop, *at(progress)) == pytest.approx(expected)


@given(st.integers(0, 300), st.floats(0, 30))
def test_momentum_by_share_is_momentum_by_steps(step: int, elapsed: float) -> None:
    by_steps = muon_momentum(MuonSettings(momentum_warmup_steps=30), STEPS, step, elapsed)
    by_share = muon_momentum(MuonSettings(momentum_warmup_share=0.3), STEPS, step, elapsed)
    assert by_share == pytest.approx(by_steps)
    assert 0.85 <= by_share <= 0.95


@given(st.integers(1, 40_000), st.floats(0, 1000))
def test_reference_multiplier_is_a_share(step: int, elapsed: float) -> None:
    assert 0.0 <= lr_multiplier(ScheduleSettings(), StopSettings(), step, elapsed) <= 1.0


def test_whichever_limit_comes_first_ends_the_run() -> None:
    both = StopSettings(steps=10, seconds=5.0)
    assert [is_over(both, step, elapsed) for step, elapsed in ((9, 4.9), (10, 0.0), (0, 5.0))] == [False, True, True]
    assert not is_over(STEPS, 99, 1e9)
    assert not is_over(SECONDS, 10**9, 9.9)
    assert run_progress(SECONDS, 0, 20.0) == 1.0
