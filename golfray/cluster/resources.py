"""What a Ray cluster of this machine's own would offer, without starting one."""

from __future__ import annotations

import logging


def local_resources(cpus: int | None = None) -> dict[str, float]:
    """{"CPU": n, "GPU": m} by Ray's own count: cgroup limits, sets of CPUs and CUDA_VISIBLE_DEVICES are respected.

    ``cpus`` stands in for its count of CPUs, as in :func:`golfray.cluster.environment.start_session`. Ray is imported
    and not started; nothing is written.
    """
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    # Inside a container it warns that it counts the container's CPUs, which is what is wanted.
    logger = logging.getLogger("ray._private.utils")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        found = ResourceAndLabelSpec(num_cpus=cpus).resolve(is_head=True, node_ip_address="127.0.0.1")
    finally:
        logger.setLevel(before)
    return {"CPU": float(found.num_cpus or 0), "GPU": float(found.num_gpus or 0)}
