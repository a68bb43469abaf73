"""Does stopping pay? Simulated studies of muon.yaml at full scale with the same time, with a rule and without.

    python benchmarks/stopping.py --seeds 150 --minutes 300

Each pair has the same sampler seed, the same luck and the same trial 0. A trial that was stopped is played to its end
afterwards, so it is known of each whether it would have won its study, and what the winner lost by that.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from golfray.ship.packer import bytes_code
from golfray.sweep.choosing import best_feasible
from golfray.sweep.executor import Finished, Job
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.regret import Stopped, stopped_trials
from golfray.sweep.sim.attempt import simulate
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.executor import SimulatedExecutor
from golfray.sweep.sim.law import LAWS
from golfray.sweep.sim.simulation import Simulation
from golfray.sweep.sim.sizes import SimulatedSizes
from golfray.sweep.space import Space, load_space
from golfray.sweep.stopping import LATE_CHECK, OFF, RUNGS
from golfray.sweep.study import Study
from golfray.sweep.trial_record import TrialRecord

SPACE = Path(__file__).parents[1] / "search_spaces" / "muon.yaml"


@dataclasses.dataclass(frozen=True)
class Played:
    """What came of one study: its best feasible score, trials that were asked, and what stopping did to it."""

    best: float
    asked: int
    stopped: Stopped
    seconds: float
    regret: float


def run(space: Space, folder: Path, simulation: Simulation) -> StudyRecord:
    """One simulated study on one lane."""
    config = space.base.config
    law, clock = LAWS[simulation.scale], FakeClock(1e9)
    executor = SimulatedExecutor(simulation, clock, workers=config.workers, limits=space.limits)
    folder.mkdir(parents=True)
    return Study(
        space,
        executor,
        folder,
        bytes_code=bytes_code(config.to_run_settings(0)),
        uniform_bpb=law.uniform_bpb,
        data={"folder": "", "name": "simulated", "reference": {"uniform": law.uniform_bpb}, "warning": None},
        clock=clock.now,
        now=clock.now,
        simulation=simulation.to_record(),
        sizes=SimulatedSizes(law),
    ).run()


def without_stop(space: Space, simulation: Simulation, trial: TrialRecord) -> Outcome:
    """How a trial would have ended that was stopped."""
    assert trial.settings is not None
    job = Job("played to its end", trial.settings, "")
    _, last = simulate(simulation, job, "sim-0", space.base.config.workers, space.limits)[-1]
    assert isinstance(last, Finished)
    return last.outcome


def play(space: Space, folder: Path, seed: int) -> Played:
    """One study, and what its stopped trials would have been."""
    simulation = Simulation.from_options("full", [f"seed={seed}"])
    record = run(dataclasses.replace(space, seed=seed), folder, simulation)
    best = best_feasible(record)
    assert best is not None
    assert best.bpb is not None
    ends = [
        without_stop(space, simulation, trial)
        for trial in record.trials
        if trial.outcome is not None and trial.outcome.kind is Kind.STOPPED
    ]
    lost = [best.bpb - end.metrics["bpb/roundtrip"] for end in ends if end.kind is Kind.SCORED]
    ran = sum(not trial.too_large for trial in record.trials)
    return Played(best.bpb, ran, stopped_trials(record), record.driven_seconds, max([0.0, *lost]))


def table(off: list[Played], on: list[Played]) -> list[str]:
    """Lines on pairs of studies."""
    better = sum(one.best < other.best for one, other in zip(on, off, strict=True))
    same = sum(one.best == other.best for one, other in zip(on, off, strict=True))
    gains = [other.best - one.best for one, other in zip(on, off, strict=True)]
    error = statistics.stdev(gains) / len(gains) ** 0.5
    saved = sum(one.stopped.saved_s for one in on) / sum(one.seconds + one.stopped.saved_s for one in on)
    missed, lost = sum(one.regret > 0 for one in on), statistics.fmean(one.regret for one in on)
    counts = (statistics.fmean(p.asked for p in off), statistics.fmean(p.asked for p in on))
    stopped = statistics.fmean(p.stopped.stopped for p in on)
    return [
        f"  trials run:           {counts[0]:.1f} off, {counts[1]:.1f} on, {stopped:.1f} of them stopped",
        f"  cost saved:           {100 * saved:.1f} % of what the same trials take without stops",
        f"  winners stopped:      in {missed} of {len(on)} studies, {lost:.5f} BPB a study",
        f"  best at equal time:   {statistics.median(p.best for p in off):.4f} off, "
        f"{statistics.median(p.best for p in on):.4f} on (medians)",
        f"  on better:            {better}, equal {same}, worse {len(on) - better - same}; "
        f"mean gain {statistics.fmean(gains):+.5f} BPB, standard error {error:.5f}",
    ]


def studies(
    samplers: Sequence[str], rules: Sequence[str], *, seeds: int, minutes: float, scratch: Path
) -> dict[tuple[str, str], list[Played]]:
    """What came of ``seeds`` studies of so many simulated minutes under each sampler and rule, by those."""
    budget = f"{{trials: 10000, minutes: {minutes}}}"
    own = f"name: stopping\nreplicates: 1\nbudget: {budget}\nfixed: {{runtime.log_points: 20}}\n"
    (scratch / "stopping.yaml").write_text(f"extends: {SPACE}\n{own}")
    space = load_space(scratch / "stopping.yaml", has_gpu=True)
    return {
        (sampler, rule): [
            play(dataclasses.replace(space, sampler=sampler, stopping=rule), scratch / f"{sampler}-{rule}-{seed}", seed)
            for seed in range(seeds)
        ]
        for sampler in samplers
        for rule in rules
    }


def main() -> None:
    """Print a table for each sampler and rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=150)
    parser.add_argument("--minutes", type=float, default=300)
    parser.add_argument("--rules", nargs="+", default=[LATE_CHECK, RUNGS], choices=[LATE_CHECK, RUNGS])
    parser.add_argument("--samplers", nargs="+", default=["random", "tpe"], choices=["random", "tpe"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        played = studies(
            given.samplers, [OFF, *given.rules], seeds=given.seeds, minutes=given.minutes, scratch=Path(scratch)
        )
    for sampler, rule in itertools.product(given.samplers, given.rules):
        print(f"{sampler}, {rule}: {given.seeds} pairs of studies of {given.minutes:g} minutes")
        print("\n".join(table(played[sampler, OFF], played[sampler, rule])))


if __name__ == "__main__":
    main()
