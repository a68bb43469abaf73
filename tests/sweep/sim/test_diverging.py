"""Rates above a threshold diverge, the sampler hears of it, and goes there less and less."""

import pytest

from golfray.sweep.outcome import Kind
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.trial_record import SAMPLER
from tests.sweep.sim.conftest import SPACE

# Above twice the best rate, which is half of the range. Beside the preset and its 8-bit form forty trials are sampled.
MACHINE = Simulation(scale="laptop", diverge_ratio=2.0)
TEXT = SPACE.replace("{trials: 10}", "{trials: 42}").replace("high: 0.4,", "high: 1.0,")


@pytest.fixture
def diverged(simulated, tmp_path):
    """How many of the sampler's first twenty trials diverged, and of its next twenty."""

    def run(sampler, seed):
        text = TEXT.replace("seed: 3", f"seed: {seed}") + f"sampler: {sampler}\n"
        record = simulated(MACHINE, text, tmp_path / f"{sampler}-{seed}").run()
        ran = [trial for trial in record.trials if trial.role == SAMPLER and not trial.too_large]
        assert len(ran) == 40
        found = [trial.outcome.kind is Kind.DIVERGED for trial in ran]
        return sum(found[:20]), sum(found[20:])

    return run


def test_the_last_twenty_of_forty_diverge_less_than_half_as_often_as_the_first(diverged):
    first, last = diverged("tpe", 4)
    assert first >= 4
    assert last < first / 2


@pytest.mark.slow
def test_so_it_is_on_average_and_points_at_random_do_not_learn(diverged):
    first, last = map(sum, zip(*(diverged("tpe", seed) for seed in range(8)), strict=True))
    assert last < first / 2
    first, last = map(sum, zip(*(diverged("random", seed) for seed in range(8)), strict=True))
    assert last > first / 2
