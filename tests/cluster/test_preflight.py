"""Resources become lanes, or a message that says what to change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.cluster.preflight import EnvironmentProblem, plan_lanes


@pytest.mark.parametrize(
    ("resources", "workers", "device", "slots", "chosen", "threads"),
    [
        ({"CPU": 2.0}, 1, "auto", 2, "cpu", 1),
        ({"CPU": 2.0}, 2, "auto", 1, "cpu", 1),
        ({"CPU": 192.0, "GPU": 8.0}, 8, "auto", 1, "cuda", 24),
        ({"CPU": 192.0, "GPU": 8.0}, 1, "auto", 8, "cuda", 24),
        ({"CPU": 192.0, "GPU": 8.0}, 3, "auto", 2, "cuda", 24),
        ({"CPU": 4.0, "GPU": 8.0}, 4, "cuda", 2, "cuda", 1),
        ({"CPU": 16.0, "GPU": 1.0}, 2, "cpu", 8, "cpu", 1),
    ],
)
def test_lanes_follow_from_resources(resources, workers, device, slots, chosen, threads):
    plan = plan_lanes(resources, workers, device)
    assert (plan.slots, plan.device, plan.threads_per_worker) == (slots, chosen, threads)


@given(cpus=st.integers(0, 300), gpus=st.integers(0, 64), workers=st.integers(1, 40), limit=st.integers(1, 10))
def test_what_lanes_reserve_is_there(cpus, gpus, workers, limit):
    resources = {"CPU": float(cpus), "GPU": float(gpus)}
    if workers > (gpus or cpus):
        with pytest.raises(EnvironmentProblem) as caught:
            plan_lanes(resources, workers, "auto", limit)
        assert caught.value.exit_code == 4
        return
    plan = plan_lanes(resources, workers, "auto", limit)
    assert 1 <= plan.slots <= limit
    for name, free in (("CPU", cpus), ("GPU", gpus)):
        assert plan.resources_per_worker.get(name, 0.0) * workers * plan.slots <= free


def test_messages_say_what_to_do():
    with pytest.raises(EnvironmentProblem, match=r"3 workers needs 3 CPUs.*offers 2 CPUs here; use at most 2 workers"):
        plan_lanes({"CPU": 2.0}, 3, "auto")
    with pytest.raises(EnvironmentProblem, match=r"1 worker needs 1 GPU, but Ray offers none"):
        plan_lanes({"CPU": 2.0}, 1, "cuda")
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        plan_lanes({"CPU": 2.0}, 0, "auto")
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'tpu'"):
        plan_lanes({"CPU": 2.0}, 1, "tpu")


def test_description_says_how_the_number_follows():
    assert (
        plan_lanes({"CPU": 2.0}, 1, "auto").describe()[0]
        == "2 trials at once: 2 CPUs free, one a worker, 1 worker a trial"
    )
    limited = plan_lanes({"CPU": 8.0}, 1, "auto", max_lanes=2).describe()[0]
    assert limited == "2 trials at once: 8 CPUs free, one a worker, 1 worker a trial, limited to what the study can use"
