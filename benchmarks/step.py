"""Tokens/s of the training step at the laptop shape, as ratios in one run: ``make bench``.

Three questions: what compiling and stacking are worth (1 and 2 ranks), what a second rank is worth, and what a lane
costs against torchrun. Everything runs a number of steps, in alternating pairs, and medians are compared: the machine
may be busy, so only ratios mean anything.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from golfray.cluster.executor import RayExecutor
from golfray.config.resolve import resolve
from golfray.core.settings import RunSettings, StopSettings, settings_to_json
from golfray.data.corpus import demo_corpus
from golfray.ship.launch import run_under_torchrun
from golfray.ship.packer import bytes_code
from golfray.sweep.executor import Finished, Job

PAIRS = 7
BLOCK_STEPS = 20
RUN_STEPS = 100


def laptop_settings() -> RunSettings:
    """The laptop scale on the demo corpus, told to run a number of steps."""
    config = resolve("parameter-golf", "laptop", {}, has_gpu=False).config
    settings = dataclasses.replace(config.to_run_settings(bytes_code()), data=demo_corpus().settings())
    return dataclasses.replace(settings, stop=StopSettings(steps=RUN_STEPS, seconds=None))


def compare_forms(settings: RunSettings, ranks: int, folder: Path) -> dict[str, float]:
    """Median tokens/s of each form of the step on ``ranks`` ranks, measured in turn in the same processes."""
    settings_file = folder / "settings.json"
    settings_file.write_text(settings_to_json(settings), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command += [str(Path(__file__).with_name("forms.py")), str(settings_file), str(BLOCK_STEPS), str(PAIRS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    answer = json.loads(output.strip().splitlines()[-1])
    default = answer["rates"]["default"]
    print(f"\n{ranks} rank(s), {'compiled' if answer['compiled'] else 'eager'} by default, median of {PAIRS} blocks:")
    for name, rates in answer["rates"].items():
        pairs = [own / other for own, other in zip(default, rates, strict=True)]
        print(f"  {name:30s} {statistics.median(rates):10,.0f} tokens/s   default is {statistics.median(pairs):.2f}x")
    return {name: statistics.median(rates) for name, rates in answer["rates"].items()}


def compare_lane(settings: RunSettings, ranks: int, folder: Path) -> float:
    """Median over pairs of tokens/s in a lane over tokens/s under torchrun, runs in turn."""
    ratios = []
    with RayExecutor(folder / "study", ranks) as executor:
        for pair in range(PAIRS + 1):
            rates = {}
            for where in ("lane", "torchrun") if pair % 2 == 0 else ("torchrun", "lane"):
                own = folder / f"{where}-{pair}"
                if where == "torchrun":
                    result = run_under_torchrun(settings, ranks, own, lambda point: None, lambda line: None)
                    rates[where] = result["metrics"]["train/tokens_per_s"]
                else:
                    executor.submit(Job(f"{where}-{pair}", dataclasses.asdict(settings), str(own)))
                    rates[where] = wait_for(executor).outcome.metrics["train/tokens_per_s"]
            if pair:  # the first pair fills caches
                ratios.append(rates["lane"] / rates["torchrun"])
                print(
                    f"  pair {pair}: lane {rates['lane']:,.0f}, torchrun {rates['torchrun']:,.0f} tokens/s", flush=True
                )
    ratio = statistics.median(ratios)
    print(f"  lane / torchrun, {ranks} ranks, median of {PAIRS} pairs of {RUN_STEPS} steps: {ratio:.3f}")
    return ratio


def wait_for(executor: RayExecutor) -> Finished:
    """The next end of a job."""
    while True:
        for event in executor.events(1.0):
            if isinstance(event, Finished):
                return event


def main() -> None:
    """Print all comparisons."""
    settings = laptop_settings()
    with tempfile.TemporaryDirectory(prefix="golfray-bench-") as name:
        folder = Path(name)
        rates = {ranks: compare_forms(settings, ranks, folder) for ranks in (1, 2)}
        print(f"\n2 ranks over 1, default form: {rates[2]['default'] / rates[1]['default']:.2f}x")
        print("\nin a lane and under torchrun:")
        compare_lane(settings, 2, folder)


if __name__ == "__main__":
    main()
