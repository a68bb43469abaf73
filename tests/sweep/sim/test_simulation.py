"""What a person may type about a simulated machine, and what the log keeps of it."""

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.sim.simulation import LAW_VERSION, Simulation


def test_options_are_read_and_the_log_keeps_them_all():
    simulation = Simulation.from_options("laptop", ["lanes=3", "seed=7", "crash=.05", "slow_factor=1.2"])
    assert simulation == Simulation(scale="laptop", lanes=3, seed=7, crash=0.05, slow_factor=1.2)
    assert Simulation.from_record(simulation.to_record()) == simulation
    assert Simulation.from_options("full", []) == Simulation()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("speed=2", "--sim speed=2: no such name; one of lanes, seed, broken, crash"),
        ("scale=full", "--sim scale=full: no such name"),
        ("lanes", "--sim lanes: must be a whole number"),
        ("lanes=1.5", "--sim lanes=1.5: must be a whole number"),
        ("lanes=0", "--sim lanes=0: must be >= 1"),
        ("crash=often", "--sim crash=often: must be a number"),
        ("crash=nan", "--sim crash=nan: must be within 0 and 1"),
        ("broken=1.5", "--sim broken=1.5: must be within 0 and 1"),
        ("slow_factor=inf", "--sim slow_factor=inf: must be >= 1 and finite"),
        ("diverge_ratio=0", "--sim diverge_ratio=0: must be >= 1 and finite"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_must_be(option, message):
    with pytest.raises(ConfigError, match="^" + message):
        Simulation.from_options("full", [option])


def test_no_attempt_can_go_wrong_in_two_ways():
    with pytest.raises(ConfigError, match="together must be at most 1"):
        Simulation(crash=0.5, preempt=0.4, hang=0.2)


@pytest.mark.parametrize("change", [{"law": LAW_VERSION + 1}, {"lanes": None}, {"weather": 1}])
def test_another_law_goes_on_with_no_study(change):
    record = {name: value for name, value in {**Simulation().to_record(), **change}.items() if value is not None}
    with pytest.raises(ConfigError, match="start another study"):
        Simulation.from_record(record)
