"""From a machine's resources to the number of lanes, or one clear reason why not even one fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


class EnvironmentProblem(RuntimeError):
    """The machine or the cluster cannot do what was asked; the message says what to change."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class LanePlan:
    """How a cluster is cut into lanes.

    ``device`` is "cpu" or "cuda". ``resources_per_worker`` is what Ray reserves for one rank; ``threads_per_worker``
    is what its arithmetic libraries may use, the same in every lane so that trials by wallclock stay comparable.
    ``most``: no more lanes than this, however large the cluster becomes; None where nothing limits them. ``free``: the
    resources that it was made for.
    """

    slots: int
    workers: int
    device: str
    resources_per_worker: dict[str, float]
    threads_per_worker: int
    cpus: int
    gpus: int
    limited: bool
    most: int | None = None
    free: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def fits(self, resources: Mapping[str, float]) -> int:
        """How many lanes those resources hold, at most ``most``."""
        # Fractions of what others take may add up to a hair less than a whole.
        needs = self.resources_per_worker.items()
        fits = min(int((resources.get(name, 0.0) + 1e-6) / (each * self.workers)) for name, each in needs)
        return fits if self.most is None else min(fits, self.most)

    def describe(self) -> list[str]:
        """Lines that say the concurrency and how it follows from the machine."""
        if self.device == "cuda":
            have = f"{_count(self.gpus, 'GPU')} free, one a worker"
        else:
            have = f"{_count(self.cpus, 'CPU')} free, one a worker"
        limit = ", limited to what the study can use" if self.limited else ""
        return [
            f"{_count(self.slots, 'trial')} at once: {have}, {_count(self.workers, 'worker')} a trial{limit}",
            f"each worker computes with {_count(self.threads_per_worker, 'CPU thread')} ({self.device})",
        ]


def plan_lanes(resources: Mapping[str, float], workers: int, device: str, max_lanes: int | None = None) -> LanePlan:
    """Cut free ``resources`` (Ray's names: "CPU", "GPU") into lanes of ``workers`` ranks.

    ``device`` is "auto" (cuda where there is at least one GPU), "cpu" or "cuda". On the CPU a worker takes one CPU and
    one thread; on GPUs it takes one GPU and its share of the CPU threads. ``max_lanes`` caps the number of lanes where
    fewer are needed than fit. Raises ``ValueError`` on numbers that make no sense and :class:`EnvironmentProblem`
    where not even one lane fits.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if max_lanes is not None and max_lanes < 1:
        raise ValueError(f"max_lanes must be at least 1, got {max_lanes}")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {device!r}")
    cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    chosen = device if device != "auto" else ("cuda" if gpus else "cpu")
    unit, free = ("GPU", gpus) if chosen == "cuda" else ("CPU", cpus)
    fits = free // workers
    if fits < 1:
        raise EnvironmentProblem(
            f"a trial of {_count(workers, 'worker')} needs {_count(workers, unit)}, one a worker, but Ray offers "
            f"{_count(free, unit)} here; use at most {free} workers, or a bigger machine or cluster"
            if free
            else f"a trial of {_count(workers, 'worker')} needs {_count(workers, unit)}, but Ray offers none here"
        )
    if chosen == "cuda":
        threads = max(1, cpus // gpus)
        reserved = {"GPU": 1.0, "CPU": 1.0} if cpus >= gpus else {"GPU": 1.0}
    else:
        threads, reserved = 1, {"CPU": 1.0}
    slots = fits if max_lanes is None else min(fits, max_lanes)
    return LanePlan(slots, workers, chosen, reserved, threads, cpus, gpus, slots < fits, max_lanes, dict(resources))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
