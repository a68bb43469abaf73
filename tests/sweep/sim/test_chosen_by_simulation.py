"""What a simulated study chooses is truly better, on average, than the lowest score that it saw."""

import statistics

import pytest

from golfray.core.settings import settings_from_dict
from golfray.sweep.choosing import choose
from golfray.sweep.sim.law import LAPTOP, expected_bpb
from golfray.sweep.sim.simulation import Simulation
from tests.sweep.sim.conftest import SPACE

# Neighbours of the best point, which differ by less than seeds do.
NEAR = (
    SPACE.replace("{trials: 10}", "{trials: 10, extra_seeds: 6}")
    .replace("replicates: 2", "replicates: 4\nsampler: random")
    .replace("{low: 0.02, high: 0.4, log: true}", "{low: 0.03, high: 0.12, log: true}")
    .replace("export.bits_mlp: {low: 4, high: 8}", "schedule.warmdown_share: {low: 0.5, high: 1.0}")
    .replace("cap_bytes: 320000, ", "")
)


def true_mean(trial) -> float:
    settings = settings_from_dict(trial.settings)
    return expected_bpb(LAPTOP, settings, settings.stop.steps).roundtrip


@pytest.mark.slow
def test_what_is_chosen_has_a_better_true_mean_than_the_lowest_score_on_average(simulated, tmp_path):
    gains, other = [], 0
    for luck in range(40):
        folder = tmp_path / f"{luck}"
        record = simulated(Simulation(scale="laptop", seed=luck), NEAR, folder).run()
        choice = choose(record)
        gains.append(true_mean(choice.lowest) - true_mean(choice.best.trial))
        other += choice.lowest is not choice.best.trial
    assert other >= 10
    assert statistics.fmean(gains) > statistics.stdev(gains) / len(gains) ** 0.5
