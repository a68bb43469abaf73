"""How well ``golfray tune --dry-run`` foresees a study: plans it, runs it, and compares time and bytes part by part.

    python benchmarks/plan.py SPACE.yaml [RUNS]

Every run gets a new folder below a temporary one, so no earlier study helps the plan. docs/log.md has what came of it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOLFRAY = Path(sys.executable).with_name("golfray")


def planned(space: Path, folder: Path) -> dict[str, Any]:
    """The document of a dry run."""
    command = [str(GOLFRAY), "tune", str(space), "--study-dir", str(folder), "--dry-run", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def ran(space: Path, folder: Path) -> tuple[float, float, list[dict[str, Any]]]:
    """When the command was given, how many seconds it took, and the study's log."""
    begin = time.time()
    subprocess.run(
        [str(GOLFRAY), "tune", str(space), "--study-dir", str(folder), "-q"], check=True, stdout=subprocess.DEVNULL
    )
    took = time.time() - begin
    return begin, took, [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def compare(plan: dict[str, Any], begin: float, took: float, log: list[dict[str, Any]]) -> None:
    """Print a line for each part: foreseen, and what it was."""
    foreseen = plan["time"]
    started = [record["time"] for record in log if record["event"] == "attempt_started"]
    ended = [record for record in log if record["event"] == "attempt_ended"]
    outcomes = [record["outcome"] for record in ended]

    def line(name: str, expected: float, real: list[float]) -> None:
        share = f"{expected / statistics.fmean(real):6.2f}" if statistics.fmean(real) else ""
        each = " ".join(f"{value:.1f}" for value in real[:16])
        print(f"{name:12} {expected:8.1f} {statistics.fmean(real):8.1f} {share}   {each}")

    print(f"{'seconds':12} {'foreseen':>8} {'was':>8} {'ratio':>6}")
    line("in all", foreseen["total_s"], [took])
    line("open", foreseen["open_s"], [log[0]["time"] - begin])
    line("lanes", foreseen["lanes_s"], [started[0] - log[0]["time"]])
    line("close", foreseen["close_s"], [begin + took - log[-1]["time"]])
    line("compile 1st", foreseen["compile_first_s"], [outcomes[0]["phases"].get("compile", 0.0)])
    for phase, expected in foreseen["phases_s"].items():
        line(phase, expected, [outcome["phases"].get(phase, 0.0) for outcome in outcomes[1:] or outcomes])
    line("steps", plan["data"]["steps"], [outcome["metrics"].get("train/steps", 0.0) for outcome in outcomes])
    for point in plan["points"]:
        real = next(record["outcome"]["metrics"] for record in ended if record["trial"] == point["number"])
        total = real.get("bytes/total")
        if total and point["bytes_total"]:
            missed, stated = point["bytes_total"] / total - 1, point["error"] / point["bytes_total"]
            words = f"{point['bytes_total']:,} foreseen, {total:,.0f} it was: {missed:+.1%} (+-{stated:.1%})"
            print(f"t{point['number']:03d} bytes: {words}")


def main(arguments: list[str]) -> None:
    """Plan and run a space as often as asked."""
    space, runs = Path(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    with tempfile.TemporaryDirectory(prefix="golfray-plan-") as folder:
        for run in range(runs):
            # A folder of folders: a study beside the planned one would be taken for a record of it.
            place = Path(folder) / str(run) / "study"
            load = Path("/proc/loadavg").read_text().split()[0]
            plan = planned(space, place)
            print(
                f"\nrun {run}, load {load}, {len(plan['trials']['roles'])} trials in {plan['lanes']['count']} lane(s)"
            )
            compare(plan, *ran(space, place))
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
