"""Does it pay to tell the sampler of public records? Simulated studies of muon.yaml at full scale, with and without.

    python benchmarks/warm_start.py --seeds 12 --trials 24

Each pair has the same sampler seed, the same luck and the same trial 0. What is compared is the best feasible score
after so many trials. The simulator's law was fitted to the same public numbers, so it flatters the records; what it
shows is whether they are heard at all, and whether they can hurt.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
from pathlib import Path

# Run as a script, so that the folder of this file is the first place of imports.
from choosing import SPACE, run

from golfray.sweep.observation import published_observations, write_observations
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import load_space

AFTER = (6, 8, 12, 16, 24, 32, 48)


def best_after(record: StudyRecord, count: int) -> float:
    """Best score under the cap among the first ``count`` trials that ran and are no replicates."""
    ran = [trial for trial in record.trials if not trial.too_large and trial.replicate_of is None][:count]
    candidates = {trial.number for trial in record.candidates}
    return min(
        (trial.bpb for trial in ran if trial.number in candidates and trial.bpb is not None), default=float("inf")
    )


def main() -> None:
    """Print one line a number of trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--trials", type=int, default=24)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_observations(folder / "public.json", published_observations())
        own = f"name: warm\nwarm_start: public.json\nreplicates: 1\nbudget: {{trials: {given.trials}}}\n"
        (folder / "warm.yaml").write_text(f"extends: {SPACE}\n{own}")
        warm = load_space(folder / "warm.yaml", has_gpu=True)
        kinds = {
            "random": dataclasses.replace(warm, warm_start=(), sampler="random"),
            "tpe": dataclasses.replace(warm, warm_start=()),
            "tpe, warm": warm,
        }
        records = {
            name: [
                run(dataclasses.replace(space, seed=seed), folder / f"{name}-{seed}", seed)
                for seed in range(given.seeds)
            ]
            for name, space in kinds.items()
        }
    print(f"best feasible BPB, median of {given.seeds} simulated studies; in how many pairs warm is better than tpe")
    print(f"{'trials':>6}  " + "  ".join(f"{name:>9}" for name in kinds))
    for count in (number for number in AFTER if number <= given.trials):
        best = {name: [best_after(record, count) for record in found] for name, found in records.items()}
        wins = sum(one < other for one, other in zip(best["tpe, warm"], best["tpe"], strict=True))
        medians = "  ".join(f"{statistics.median(found):9.4f}" for found in best.values())
        print(f"{count:>6}  {medians}  {wins} of {given.seeds}")


if __name__ == "__main__":
    main()
