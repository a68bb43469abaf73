"""A part of benchmarks/stopping.py: how many winners the late check stops, and what it saves."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "stopping.py"


@pytest.fixture(scope="module")
def script():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("stopping_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_hardly_a_winner_is_stopped_and_time_is_saved(script, tmp_path, sampler):
    pairs = script.studies([sampler], [script.OFF, script.LATE_CHECK], seeds=20, minutes=300.0, scratch=tmp_path)
    off, on = pairs[sampler, script.OFF], pairs[sampler, script.LATE_CHECK]
    assert sum(one.regret > 0 for one in on) <= 2
    assert sum(one.stopped.stopped for one in on) >= 20
    saved = sum(one.stopped.saved_s for one in on)
    assert 0.01 < saved / sum(one.seconds + one.stopped.saved_s for one in on) < 0.2
    assert sum(one.asked for one in on) > sum(one.asked for one in off)
