"""Does searching pay on a laptop? Real studies of muon.yaml by several samplers, and their winners on fresh seeds.

    python benchmarks/laptop_search.py --seeds 5 --trials 12 --steps 60

For each seed and sampler `golfray tune` runs a study, and `golfray confirm --paired` its winner and trial 0 again on
fresh seeds. Every trial ends after so many steps, so the load of the machine changes no score. The studies of one seed
train on the same seeds whatever their sampler, and no two seeds share any. Trial 0 has no replicates: the fresh seeds
say what they would, and what a study with one seed of each configuration chooses is its lowest score that fits.

Called again it goes on where it was cut, and runs nothing twice: the table is made from the studies' logs alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from golfray.sweep.choosing import best_feasible
from golfray.sweep.events import LOG_NAME
from golfray.sweep.records import StudyRecord
from golfray.sweep.significance import OneSided, paired
from golfray.sweep.trial_record import CONFIRM, TrialRecord

SPACE = Path(__file__).parents[1] / "search_spaces" / "muon.yaml"

# Seeds of training that one study can use: its own, and its fresh ones from 1,000 behind that.
_SEEDS_APART = 10_000


@dataclasses.dataclass(frozen=True)
class Played:
    """What a study found, in bits per byte.

    ``trials`` is how many the search trained. ``chosen_by`` is the winner's score in it, ``preset`` trial 0's.
    ``fresh`` has the scores of both on each fresh seed, winner first, None where that run had none.
    """

    winner: int
    trials: int
    chosen_by: float
    preset: float
    fresh: tuple[tuple[float | None, float | None], ...]

    @property
    def differences(self) -> list[float]:
        """Winner minus trial 0 on each fresh seed that both have a score on."""
        return [ours - preset for ours, preset in self.fresh if ours is not None and preset is not None]

    @property
    def difference(self) -> float:
        """Their mean."""
        return statistics.fmean(self.differences)

    @property
    def wins(self) -> int:
        """Fresh seeds on which the winner is below trial 0; without a score it is not."""
        return sum(ours is not None and (preset is None or ours < preset) for ours, preset in self.fresh)

    @property
    def curse(self) -> float:
        """By how much less the winner is below trial 0 on fresh seeds than in the search that chose it."""
        return self.difference - (self.chosen_by - self.preset)


def space_text(sampler: str, seed: int, *, trials: int, steps: int) -> str:
    """The space file of one study."""
    return (
        f"extends: {SPACE}\n"
        f"name: {sampler}-{seed}\n"
        "scale: laptop\n"
        f"sampler: {sampler}\n"
        f"seed: {seed}\n"
        f"budget: {{trials: {trials}}}\n"
        "replicates: 1\n"
        f"fixed: {{stop.steps: {steps}, stop.seconds: null, runtime.seed: {_SEEDS_APART * (seed + 1)}}}\n"
    )


def fresh_scores(record: StudyRecord, winner: TrialRecord) -> dict[int, tuple[float | None, float | None]]:
    """What the winner and trial 0 scored on every fresh seed on which a run of each has ended, by that seed."""
    ended = {
        (trial.replicate_of, trial.seed): trial.bpb
        for trial in record.trials
        if trial.role == CONFIRM and trial.outcome is not None
    }
    both = [seed for of, seed in ended if of == 0 and (winner.number, seed) in ended]
    return {seed: (ended[winner.number, seed], ended[0, seed]) for seed in both}


def played(record: StudyRecord) -> Played:
    """What a study found whose winner was confirmed. Raises ``ValueError`` where it has nothing to compare."""
    winner, preset = best_feasible(record), record.trials[0].bpb
    if winner is None or winner.bpb is None or preset is None:
        raise ValueError(f"{record.name}: it has no trial that fits, or trial 0 no score")
    found = Played(
        winner=winner.number,
        trials=sum(trial.searches and not trial.is_refused for trial in record.trials),
        chosen_by=winner.bpb,
        preset=preset,
        fresh=tuple(fresh_scores(record, winner).values()),
    )
    if not found.differences:
        raise ValueError(f"{record.name}: the winner and trial 0 have no score on the same fresh seed")
    return found


def run(folder: Path, space: str, fresh: int) -> StudyRecord:
    """Bring a study to its end: its search, and its winner and trial 0 on ``fresh`` seeds. Returns its record.

    Raises ``ValueError`` where the folder's study has another space, ``CalledProcessError`` where golfray fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, study = folder / "space.yaml", folder / "study"
    if file.exists() and file.read_text(encoding="utf-8") != space:
        raise ValueError(f"{folder}: this study was begun with other options; name another --folder")
    file.write_text(space, encoding="utf-8")
    if not (study / LOG_NAME).exists():
        _golfray(folder, "tune", str(file), "--study-dir", str(study))
    elif not StudyRecord.load(study).complete:
        _golfray(folder, "tune", "--resume", str(study))
    record = StudyRecord.load(study)
    winner = best_feasible(record)
    if winner is None:
        return record
    missing = fresh - len(fresh_scores(record, winner))
    if missing > 0:
        both = dict.fromkeys([f"{study}/{winner.number}", f"{study}/0"])
        _golfray(folder, "confirm", *both, "--seeds", str(missing), "--paired")
    return StudyRecord.load(study)


def _golfray(folder: Path, *arguments: str) -> None:
    """What a person would type; what it says is kept beside the study."""
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        command = [sys.executable, "-c", "from golfray.cli.main import main; main()", *arguments]
        subprocess.run(command, check=True, stdout=output, stderr=subprocess.STDOUT)


def table(found: Mapping[tuple[str, int], Played]) -> list[str]:
    """Lines on the studies, by sampler and seed: each one, each sampler, and every other sampler beside the first."""
    lines = [
        "sampler    seed  trials  best in search  winner  fresh seeds: winner  trial 0  difference (p)   below trial 0",
    ]
    for (sampler, seed), one in found.items():
        ours = [bpb for bpb, _ in one.fresh if bpb is not None]
        preset = [bpb for _, bpb in one.fresh if bpb is not None]
        lines.append(
            f"{sampler:10} {seed:>4}  {one.trials:>6}  {one.chosen_by:>14.4f}  t{one.winner:03d}    "
            f"{statistics.fmean(ours):>19.4f}  {statistics.fmean(preset):>7.4f}  {one.difference:+.4f} "
            f"({_p(paired(one.differences))})  {one.wins} of {len(one.fresh)}"
        )
    by_sampler: dict[str, dict[int, Played]] = {}
    for (sampler, seed), one in found.items():
        by_sampler.setdefault(sampler, {})[seed] = one
    for sampler, studies in by_sampler.items():
        lines.extend(_sampler_lines(sampler, list(studies.values())))
    (first, own), *others = by_sampler.items()
    for sampler, studies in others:
        seeds = [seed for seed in own if seed in studies]
        lines.extend(_beside(first, sampler, [own[seed] for seed in seeds], [studies[seed] for seed in seeds]))
    return lines


def _sampler_lines(sampler: str, studies: Sequence[Played]) -> list[str]:
    beaten = sum(one.difference < 0 for one in studies)
    wins, runs = sum(one.wins for one in studies), sum(len(one.fresh) for one in studies)
    return [
        f"{sampler}: winner below trial 0 in {beaten} of {len(studies)} studies (mean of fresh seeds), "
        f"on {wins} of {runs} fresh seeds",
        f"  best in search: {_mean([one.chosen_by for one in studies])}",
        f"  winner minus trial 0: {_mean([one.chosen_by - one.preset for one in studies], '+')} in the search, "
        f"{_mean([one.difference for one in studies], '+')} on fresh seeds; "
        f"lost on the way {_mean([one.curse for one in studies], '+')}",
    ]


def _beside(first: str, second: str, ours: Sequence[Played], theirs: Sequence[Played]) -> list[str]:
    """The two samplers seed by seed."""
    searched = [one.chosen_by - other.chosen_by for one, other in zip(ours, theirs, strict=True)]
    fresh = [one.difference - other.difference for one, other in zip(ours, theirs, strict=True)]
    return [
        f"{first} minus {second}, by {name}: {_mean(values, '+')}; below in {sum(value < 0 for value in values)}, "
        f"equal in {sum(value == 0 for value in values)} of {len(values)}, p {_p(paired(values))}"
        for name, values in (("best in search", searched), ("winner minus trial 0 on fresh seeds", fresh))
    ]


def _mean(values: Sequence[float], sign: str = "") -> str:
    """A mean with its standard error; ``sign``: "+" where it is a difference."""
    error = f" +-{statistics.stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.4f}{error}"


def _p(test: OneSided | None) -> str:
    if test is None:
        return "unknown"
    return f"{test.p:.3f}" if test.p >= 0.001 else f"{test.p:.1e}"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samplers", nargs="+", default=["tpe", "random"], help="as the space file's `sampler`")
    parser.add_argument("--seeds", type=int, default=5, help="studies of each sampler")
    parser.add_argument("--trials", type=int, default=12, help="budget of a study, trial 0 included")
    parser.add_argument("--steps", type=int, default=60, help="length of a trial")
    parser.add_argument("--fresh", type=int, default=3, help="fresh seeds of each winner, and of trial 0")
    parser.add_argument("--folder", type=Path, default=Path("studies") / "laptop_search", help="where the studies are")
    given = parser.parse_args()
    found = {}
    # Seed by seed: what is cut short has whole pairs.
    for seed in range(given.seeds):
        for sampler in given.samplers:
            begun, folder = time.monotonic(), given.folder / f"{sampler}-{seed}"
            space = space_text(sampler, seed, trials=given.trials, steps=given.steps)
            found[sampler, seed] = played(run(folder.resolve(), space, given.fresh))
            print(f"{folder.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    ordered = {(sampler, seed): found[sampler, seed] for sampler in given.samplers for seed in range(given.seeds)}
    print("\n".join(table(ordered)))


if __name__ == "__main__":
    main()
