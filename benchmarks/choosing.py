"""What choosing by posterior mean and extra seeds are worth: simulated studies of muon.yaml, and what they choose.

    python benchmarks/choosing.py --studies 60 --trials 12 24

Each study is run on its own luck. What its choices are worth is the law's own mean of their configurations: that of the
lowest score, that of the lowest posterior mean, and that after up to so many extra seeds; beside them a study that
spends as many runs on more trials and takes its lowest score.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from golfray.core.settings import RunSettings, settings_from_dict
from golfray.ship.packer import bytes_code
from golfray.sweep.choosing import choose
from golfray.sweep.records import StudyRecord
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAWS, expected_bpb
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.sim.speed import step_seconds, steps_of
from golfray.sweep.size_estimate import SizeModel
from golfray.sweep.space import Space, load_space
from golfray.sweep.study import Study
from golfray.sweep.trial_record import TrialRecord

SPACE = Path(__file__).parents[1] / "search_spaces" / "muon.yaml"


_Row = tuple[str, list[StudyRecord], Callable[[StudyRecord], TrialRecord]]


def run(space: Space, folder: Path, luck: int, sizes: SizeModel | None = None) -> StudyRecord:
    """One simulated study on one lane. ``sizes`` foresees them, None: the law does."""
    config, clock = space.base.config, FakeClock(1e9)
    law = LAWS[config.scale]
    simulation = Simulation.from_options(config.scale, [f"seed={luck}"])
    folder.mkdir(parents=True)
    return Study(
        space,
        SimulatedExecutor(simulation, clock, workers=config.workers, limits=space.limits),
        folder,
        bytes_code=bytes_code(config.to_run_settings(0)),
        uniform_bpb=law.uniform_bpb,
        data={"folder": "", "name": "simulated", "reference": {"uniform": law.uniform_bpb}, "warning": None},
        clock=clock.now,
        now=clock.now,
        simulation=simulation.to_record(),
        sizes=sizes or SimulatedSizes(law),
    ).run()


def true_mean(space: Space, trial: TrialRecord) -> float:
    """What the law expects of a trial's configuration, in bits per byte, at the usual speed."""
    return simulated_mean(settings_from_dict(trial.settings or {}), space.base.config.scale, space.base.config.workers)


def simulated_mean(settings: RunSettings, scale: str, workers: int) -> float:
    """The same of any settings."""
    law = LAWS[scale]
    return expected_bpb(law, settings, steps_of(settings, step_seconds(law, settings, workers))).roundtrip


def lowest(record: StudyRecord) -> TrialRecord:
    """The trial with the lowest score of its own."""
    found = choose(record).lowest
    assert found is not None
    return found


def best(record: StudyRecord) -> TrialRecord:
    """The trial that the study chose."""
    found = choose(record).best
    assert found is not None
    return found.trial


def main() -> None:
    """Print a line a scale and number of trials, in thousandths of a bit per byte."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=60)
    parser.add_argument("--trials", type=int, nargs="+", default=[12, 24])
    parser.add_argument("--extra", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--scales", nargs="+", default=["laptop", "full"])
    given = parser.parse_args()
    print(f"true mean of what is chosen, minus that of the lowest score: mean of {given.studies} studies +- its error")
    print("in thousandths of a bit per byte; how often it is another, and how often of those better")
    for scale in given.scales:
        for trials in given.trials:
            _table(load_space(SPACE, has_gpu=True, scale=scale), trials, given.extra, given.studies)


def _table(space: Space, trials: int, extra: list[int], studies: int) -> None:
    def with_budget(**budget: int) -> Space:
        return dataclasses.replace(space, budget=dataclasses.replace(space.budget, **budget))

    with tempfile.TemporaryDirectory() as scratch:

        def records(space: Space, name: str) -> list[StudyRecord]:
            return [
                run(dataclasses.replace(space, seed=number), Path(scratch) / name / str(number), number)
                for number in range(studies)
            ]

        plain = records(with_budget(trials=trials), "plain")
        means = [true_mean(space, lowest(record)) for record in plain]
        rows: list[_Row] = [("posterior mean", plain, best)]
        for more in extra:
            with_extra = records(with_budget(trials=trials, extra_seeds=more), f"extra-{more}")
            used = sum(len(one.trials) - len(other.trials) for one, other in zip(with_extra, plain, strict=True))
            longer = records(with_budget(trials=trials + round(used / studies)), f"longer-{more}")
            rows.append((f"{more} extra seeds at most, {used / studies:.1f} used", with_extra, best))
            rows.append((f"{used / studies:.0f} trials more, lowest score", longer, lowest))
            rows.append((f"{used / studies:.0f} trials more, posterior mean", longer, best))
        for name, found, chooser in rows:
            gains = [true_mean(space, chooser(record)) - mean for record, mean in zip(found, means, strict=True)]
            other = [gain for gain in gains if gain != 0]
            error = statistics.stdev(gains) / len(gains) ** 0.5
            scale = space.base.config.scale
            mean = 1000 * statistics.fmean(gains)
            print(
                f"{scale:>7} {trials:>3} trials  {name:34} {mean:+7.2f} +-{1000 * error:.2f}  "
                f"{len(other)} other, {sum(gain < 0 for gain in other)} better",
                flush=True,
            )


if __name__ == "__main__":
    main()
