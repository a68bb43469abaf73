"""Simulated studies, small enough that hundreds of them take seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golfray.sweep.executor import Finished, Job, JobEvent
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAPTOP, Law
from golfray.sweep.sim.published import settings_at
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.study import Study

START = 1e9

SPACE = """\
name: played
preset: parameter-golf
scale: laptop
budget: {trials: 10}
seed: 3
replicates: 2
fixed: {cap_bytes: 320000, runtime.log_points: 3, stop.steps: 120, stop.seconds: null}
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.4, log: true}
  muon.momentum_end: {low: 0.8, high: 0.99, log: true, complement: true}
  export.bits_mlp: {low: 4, high: 8}
  export.bits_embedding: {low: 6, high: 8}
"""


@pytest.fixture
def simulated(make: Callable[..., Study], tmp_path: Path) -> Callable[..., Study]:
    """Builds a simulated study of SPACE, or of ``text``, whose folder may hold one; its clock begins at ``start``."""

    def build(
        simulation: Simulation, text: str = SPACE, folder: Path | None = None, start: float = START, **more: Any
    ) -> Study:
        clock = FakeClock(start)
        executor = SimulatedExecutor(simulation, clock, workers=2)
        folder = folder or tmp_path / "studies" / "played"
        folder.mkdir(parents=True, exist_ok=True)
        own = {
            "clock": clock.now,
            "now": clock.now,
            "simulation": simulation.to_record(),
            "sizes": SimulatedSizes(LAPTOP),
        }
        return make(text, executor=executor, folder=folder, **own, **more)

    return build


class Ran:
    """Everything that an executor told, with the clock's reading."""

    def __init__(self, told: list[tuple[float, JobEvent]]) -> None:
        self.told = told

    def of(self, job_id: str) -> list[JobEvent]:
        return [event for _, event in self.told if event.job_id == job_id]

    def end(self, job_id: str) -> tuple[float, Finished]:
        (found,) = [
            (when, event) for when, event in self.told if event.job_id == job_id and isinstance(event, Finished)
        ]
        return found


@pytest.fixture
def job_of() -> Callable[..., Job]:
    """A job of the preset at a law's scale; keyword arguments are changed settings, with __ for the dot."""
    import dataclasses

    def build(job_id: str = "s-0000-1", law: Law = LAPTOP, **changes: Any) -> Job:
        settings = settings_at(law, {name.replace("__", "."): value for name, value in changes.items()})
        return Job(job_id, dataclasses.asdict(settings), "")

    return build


@pytest.fixture
def play() -> Callable[..., Ran]:
    """Runs jobs to their end on a simulated machine; ``act(executor, event)`` may interfere."""

    def run(simulation: Simulation, *jobs: Job, act: Any = None, executor: SimulatedExecutor | None = None) -> Ran:
        clock = FakeClock(START)
        executor = SimulatedExecutor(simulation, clock, workers=8 if simulation.scale == "full" else 2)
        for job in jobs:
            executor.submit(job)
        told: list[tuple[float, JobEvent]] = []
        while sum(isinstance(event, Finished) for _, event in told) < len(jobs):
            events = executor.events(1.0)
            told += [(clock.now(), event) for event in events]
            for event in events:
                if act is not None:
                    act(executor, event)
        return Ran(told)

    return run
