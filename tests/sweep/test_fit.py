import dataclasses
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.core.settings import ExportSettings
from golfray.sweep.fit import Fit, fit_of, size_reserve, student_quantile
from golfray.sweep.size_calibration import SeedSpread, SizeCalibration, SizeRun, clip_rule
from golfray.sweep.size_estimate import SizeEstimate

REFERENCE = ExportSettings()
STD = ExportSettings(format="flat", clip_attention="std", clip_mlp="std", clip_embedding="std", scale_floor=0.0)


def estimate(size: int = 100_000, error: float = 0.02) -> SizeEstimate:
    return SizeEstimate(size, error, {"mlp": size - size // 3, "kept": size // 3}, "drawn weights")


def runs(*measured: tuple[int, float], export: ExportSettings = REFERENCE) -> list[SizeRun]:
    """(configuration, measured bytes over the 100,000 foreseen)."""
    return [SizeRun(clip_rule(export), configuration, estimate(), 100_000 * ratio) for configuration, ratio in measured]


def test_without_runs_nothing_changes() -> None:
    assert SizeCalibration().corrected(REFERENCE, estimate()) == estimate()
    known = SizeCalibration(runs((0, 1.1)))
    others = [
        {"gptq": True},
        {"overrides": "*.c_k.* bits=8"},
        {"codec": "lzma"},
        {"clip_mlp": "max"},
        {"scale_floor": 0.0},
    ]
    for other in (STD, *(dataclasses.replace(REFERENCE, **changes) for changes in others)):
        assert known.corrected(other, estimate()) == estimate()


def test_a_bias_that_every_run_shows_is_taken_out() -> None:
    for count, left in ((1, 0.009), (3, 0.005), (20, 0.001)):
        known = SizeCalibration(runs(*((number, 1.04) for number in range(count))))
        corrected = known.corrected(REFERENCE, estimate(200_000))
        assert corrected.bytes == pytest.approx(208_000, rel=left)
        assert corrected.relative_error < 0.02
        assert sum(corrected.parts.values()) == corrected.bytes


def test_runs_that_disagree_leave_the_error_large() -> None:
    wild = SizeCalibration(runs((0, 0.9), (1, 1.1), (2, 0.88), (3, 1.12))).corrected(REFERENCE, estimate())
    assert wild.relative_error > 0.05


def test_seeds_of_one_configuration_are_one_observation() -> None:
    one = SizeCalibration(runs((0, 1.03)))
    three = SizeCalibration(runs((0, 1.02), (0, 1.03), (0, 1.04)))
    assert three.corrected(REFERENCE, estimate()).bytes == pytest.approx(
        one.corrected(REFERENCE, estimate()).bytes, 1e-3
    )
    assert (one.configurations(REFERENCE), three.configurations(REFERENCE)) == (1, 1)


def test_the_spread_between_seeds_is_learned_per_clip_rule() -> None:
    seeds = [1.000, 1.004, 0.998, 1.010, 0.991]
    known = SizeCalibration(runs(*((0, ratio) for ratio in seeds)))
    spread = known.spread(REFERENCE)
    own = statistics.stdev(map(math.log, seeds))
    assert min(own, 0.005) < spread.relative < max(own, 0.005)
    assert (spread.freedom, spread.seeds) == (2 + 4, 5)
    # Of another rule nothing was seen; under standard deviations seeds are known to lie close together.
    assert known.spread(STD) == SeedSpread(pytest.approx(0.0005), 2, 0)
    many = SizeCalibration(runs(*((0, 1 + 0.03 * (-1) ** number) for number in range(200)))).spread(REFERENCE)
    assert many.relative == pytest.approx(0.03, rel=0.02)


@pytest.mark.parametrize(
    ("freedom", "probability", "exact"),
    [(2, 0.95, 2.920), (4, 0.95, 2.132), (10, 0.95, 1.812), (4, 0.9, 1.533), (6, 0.99, 3.143), (30, 0.975, 2.042)],
)
def test_quantiles_are_those_of_the_tables(freedom, probability, exact) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(exact, rel=0.015)


def test_the_reserve_holds_for_another_seed() -> None:
    # The spread known exactly: the sizes of two seeds differ by the root of two of it.
    reserve = size_reserve(1e6, SeedSpread(0.01, 10_000, 10_001), 0.95)
    assert reserve == pytest.approx(1.6449 * math.sqrt(2) * 1e4, rel=1e-3)
    assert size_reserve(1e6, SeedSpread(0.01, 2, 0), 0.5) == pytest.approx(0, abs=1e-6)


@given(margin=st.integers(-50_000, 50_000), sd=st.floats(1.0, 50_000.0))
def test_a_larger_margin_is_a_larger_chance(margin, sd) -> None:
    fit = Fit(100_000, 50_000, sd, 150_000 + margin)
    assert fit.margin == margin
    assert (fit.probability > 0.5) == (margin > 0) or margin == 0
    assert fit.probability + Fit(100_000, 50_000, sd, 150_000 - margin).probability == pytest.approx(1)
    low, high = fit.interval(0.95)
    assert low <= fit.bytes_total <= high
    assert (high - low) / (2 * 1.959963985 * sd) == pytest.approx(1, abs=1.1 / sd)


def test_what_is_certain_is_beyond_any_error() -> None:
    def certain(size: int, error: float) -> bool:
        return fit_of(estimate(size, error), 50_000, 150_000).is_certain_not_to

    assert certain(140_000, 0.02)
    assert not certain(130_000, 0.02)
    assert not certain(140_000, 0.05)
    assert not certain(90_000, 0.001)
