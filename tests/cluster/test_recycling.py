"""When a rank is started anew: what counts as leaked, on the GPU and on the host, and after how many trials."""

import pytest

from golfray.cluster.recycling import RankMemory, Recycling

MIB = 1024**2


def reasons(limits, device, host):
    """What is said after each trial, for what the rank then held."""
    held, resident = iter(device), iter(host)
    memory = RankMemory(limits, lambda: next(held), lambda: next(resident))
    return [memory.why_recycle() for _ in device]


def test_after_so_many_trials():
    assert reasons(Recycling(trials=3), [0] * 3, [100] * 3) == [None, None, "it ran 3 trials"]
    assert reasons(Recycling(trials=1), [0], [100]) == ["one trial a worker group"]


def test_device_memory_above_the_floor():
    limits = Recycling(device_floor=256 * MIB)
    said = reasons(limits, [0, 256 * MIB, 257 * MIB], [0] * 3)
    assert said[:2] == [None, None]
    assert said[2] is not None
    assert "were not given back" in said[2]


def test_host_memory_that_grows_since_the_first_trial():
    limits = Recycling(host_growth=100 * MIB)
    first = 3000 * MIB
    said = reasons(limits, [0] * 4, [first, first - 50 * MIB, first + 100 * MIB, first + 101 * MIB])
    assert said[:3] == [None, None, None]
    assert said[3] is not None
    assert said[3].endswith("in 4 trials")


def test_no_trial_at_all_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Recycling(trials=0)
