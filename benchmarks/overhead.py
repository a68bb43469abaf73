"""How much of the time trains and scores: lanes, a worker group a trial (--isolate), and plain Tune with TorchTrainer.

Usage: overhead.py [--trials 12] [--seconds 15] [--rounds 1] [--folder FOLDER]. The three run the same trials one after
another on this machine, each round in another order; on a machine with other work only their ratios mean something.
Lane start, warm-up and the validation before quantization count as overhead; starting Ray does not.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from golfray.cli.exit_codes import NO_FEASIBLE, OK
from golfray.sweep.lane_time import PARTS, USEFUL, lane_time
from golfray.sweep.records import StudyRecord

SPACE = """\
name: overhead
preset: parameter-golf
scale: laptop
budget: {trials: 12}
sampler: random
replicates: 1
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.06, log: true}}
"""
WAYS = ("lanes", "isolate", "plain")
ROOT = pathlib.Path(__file__).parents[1]


def run_golfray(folder: pathlib.Path, space: pathlib.Path, seconds: float, *options: str) -> StudyRecord:
    """A study of its own, its trials so many ``seconds`` long."""
    golfray = [sys.executable, "-c", "from golfray.cli.main import main; main()"]
    command = [*golfray, "tune", str(space), "--study-dir", str(folder), "--set", f"stop.seconds={seconds}", *options]
    code = subprocess.run(command, cwd=folder.parent, stdout=subprocess.DEVNULL).returncode
    # Trials too short to learn anything may all be too large, which is no matter here.
    if code not in (OK, NO_FEASIBLE):
        raise SystemExit(f"{' '.join(command)}: ended with {code}")
    return StudyRecord.load(folder)


def run_plain(folder: pathlib.Path, trials: list[dict[str, Any]]) -> dict[str, float]:
    """Parts of the time, as :func:`golfray.sweep.lane_time.lane_time` names them."""
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(trials))
    command = [sys.executable, str(ROOT / "benchmarks" / "plain_tune.py"), str(folder / "settings.json"), str(folder)]
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    rays = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    ended = subprocess.run(
        command,
        check=True,
        cwd=folder,
        env={**os.environ, **rays},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    parts: dict[str, float] = {}
    for phases in found["phases"]:
        for phase, seconds in phases.items():
            parts[phase] = parts.get(phase, 0.0) + seconds
    return {**parts, "between trials": found["seconds"] - sum(parts.values())}


def table(parts: dict[str, list[dict[str, float]]], trials: int) -> list[str]:
    """Seconds a trial by part, the median round of each way."""
    names = [part for part in PARTS if any(part in found for rounds in parts.values() for found in rounds)]
    lines = ["| seconds a trial | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]

    def row(name: str, value: Any) -> str:
        return f"| {name} | " + " | ".join(value(way) for way in WAYS) + " |"

    def median(way: str, of: Any) -> float:
        return statistics.median(of(found) for found in parts[way])

    def overhead(found: dict[str, float]) -> float:
        return sum(seconds for part, seconds in found.items() if part not in USEFUL)

    def share(found: dict[str, float]) -> float:
        return 100 * (1 - overhead(found) / sum(found.values()))

    lines += [
        row(name, lambda way, name=name: f"{median(way, lambda f: f.get(name, 0.0)) / trials:.2f}") for name in names
    ]
    lines.append(row("overhead", lambda way: f"{median(way, overhead) / trials:.2f}"))
    lines.append(
        row("overhead, times that of lanes", lambda way: f"{median(way, overhead) / median('lanes', overhead):.1f}")
    )
    lines.append(row("share in training and final scoring", lambda way: f"{median(way, share):.0f} %"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, default=None)
    chosen = parser.parse_args()
    folder = chosen.folder or pathlib.Path(tempfile.mkdtemp(prefix="golfray-overhead-"))
    folder.mkdir(parents=True, exist_ok=True)
    space = folder / "overhead.yaml"
    space.write_text(SPACE.replace("12", str(chosen.trials)))
    # What torch compiles is in its cache then, for all three alike.
    first = run_golfray(folder / "first", space, 1.0)
    trials = [
        {**trial.settings, "stop": {**trial.settings["stop"], "seconds": chosen.seconds}}
        for trial in first.trials
        if trial.settings is not None
    ]
    parts: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(chosen.rounds):
        for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
            own = folder / f"{way}-{number}"
            isolate = ["--isolate"] if way == "isolate" else []
            load = os.getloadavg()[0]
            if way == "plain":
                found = run_plain(own, trials)
            else:
                found = lane_time(run_golfray(own, space, chosen.seconds, *isolate)).parts
            parts[way].append(found)
            print(f"{way}, load average {load:.1f} before it: {json.dumps(found)}", flush=True)
    print("\n".join(table(parts, len(trials))))


if __name__ == "__main__":
    main()
