import os
import subprocess
import sys

import pytest

from golfray.cluster.resources import local_resources

COMPARE = """
import pathlib, sys
from golfray.cluster.environment import start_session, stop_session
session = start_session(pathlib.Path(sys.argv[1]))
import ray
offered = ray.available_resources()
stop_session(session)
from golfray.cluster.resources import local_resources
foreseen = local_resources()
assert foreseen == {name: offered.get(name, 0.0) for name in ("CPU", "GPU")}, (foreseen, offered)
"""


def test_ray_is_asked_and_not_started(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = local_resources()
    assert set(found) == {"CPU", "GPU"}
    assert 1 <= found["CPU"] <= (os.cpu_count() or 1)
    import ray

    assert not ray.is_initialized()
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_cpus_stands_in_for_the_count() -> None:
    assert local_resources(5)["CPU"] == 5.0


@pytest.mark.slow
def test_a_cluster_then_offers_just_that(tmp_path) -> None:
    # In a process of its own: Ray must be imported after golfray has set its variables.
    subprocess.run([sys.executable, "-c", COMPARE, str(tmp_path)], check=True, cwd=tmp_path)
