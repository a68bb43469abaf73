"""What a study of 10,000 trials costs a trial, early and late: simulated trials, so that only the study itself works.

    python benchmarks/log_scaling.py [random|tpe] [TRIALS]

The log is written unsynced. Prints process time a trial by thousands of trials, the ratio of the last thousand to the
first, and memory; exits with 1 where that ratio is above 2. docs/log.md has what came of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from golfray.config.resolve import Layer
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAPTOP
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space import Space, load_space
from golfray.sweep.study import Study

SPACE = Path(__file__).parent.parent / "search_spaces" / "muon.yaml"
TRIALS = 10_000
BLOCKS = 10
LARGEST_RATIO = 2.0
# A curve of two points: what is measured is the study's cost of a trial, and a point's does not depend on its place.
POINTS = 2


class Times:
    """An observer that notes the process time at which each trial ended, and memory by blocks of trials."""

    def __init__(self, block: int) -> None:
        self.begun = time.process_time()
        self.ended: list[float] = []
        self.memory: list[float] = []
        self._block = block

    def on_event(self, event: dict[str, Any]) -> None:
        """Note the end of a trial."""
        if event["event"] == "attempt_ended" and event["final"]:
            self.ended.append(time.process_time() - self.begun)
            if len(self.ended) % self._block == 0:
                self.memory.append(megabytes())

    def close(self) -> None:
        """Nothing is held back."""


def megabytes() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def space_of(sampler: str, trials: int) -> Space:
    """The shipped space at laptop scale, with so many trials."""
    layer = Layer.from_sets([f"runtime.log_points={POINTS}"])
    space = load_space(SPACE, has_gpu=False, layers=[layer])
    budget = dataclasses.replace(space.budget, trials=trials)
    return dataclasses.replace(space, sampler=sampler, budget=budget, replicates=1)


def measure(space: Space, trials: int) -> Times:
    """Run the study."""
    simulation, clock = Simulation(scale=LAPTOP.name, lanes=4), FakeClock(1e9)
    executor = SimulatedExecutor(simulation, clock, workers=space.base.config.workers)
    times = Times(max(trials // BLOCKS, 1))
    with tempfile.TemporaryDirectory(prefix="golfray-scaling-") as folder:
        study = Study(
            space,
            executor,
            Path(folder),
            bytes_code=47_227,
            uniform_bpb=LAPTOP.uniform_bpb,
            data={"folder": "", "name": "simulated", "reference": None, "warning": None},
            observers=[times],
            clock=clock.now,
            now=clock.now,
            simulation=simulation.to_record(),
            sizes=SimulatedSizes(LAPTOP),
        )
        study.run()
        log = (Path(folder) / "events.jsonl").stat().st_size
        print(f"{len(times.ended):,} trials, {log / 1e6:.1f} MB of log, {times.ended[-1]:.1f} s of process time")
        begun = time.process_time()
        type(study.record).load(Path(folder))
        print(f"to read it again: {time.process_time() - begun:.1f} s")
    return times


def main(arguments: list[str]) -> int:
    """Run one study and print its costs."""
    sampler = arguments[0] if arguments else "random"
    trials = int(arguments[1]) if len(arguments) > 1 else TRIALS
    before = megabytes()
    times = measure(space_of(sampler, trials), trials)
    block = max(trials // BLOCKS, 1)
    ends = [0.0, *times.ended[block - 1 :: block]]
    costs = [1000 * (after - begun) / block for begun, after in itertools.pairwise(ends)]
    for number, (cost, memory) in enumerate(zip(costs, times.memory, strict=True)):
        print(f"trials {number * block + 1:6,} to {(number + 1) * block:6,}: {cost:7.2f} ms a trial, {memory:6.0f} MB")
    ratio = costs[-1] / costs[0]
    print(f"{sampler}: the last {block:,} cost {ratio:.2f} times the first; {before:.0f} MB before the first trial")
    return int(ratio > LARGEST_RATIO)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
