"""The plainest way to run trials on Tune and Train: one TorchTrainer a trial, as their documentation has it.

Usage: plain_tune.py SETTINGS.json FOLDER. The file holds a list of trials' settings; each runs on two workers of one
CPU, one after another. Prints one line of JSON: seconds from Ray's start to the last trial's end, and each trial's
seconds by phase. benchmarks/overhead.py runs it; there is nothing of golfray here but the trial itself.
"""

import json
import pathlib
import sys
import time

import ray
import ray.train
from ray import tune
from ray.train.torch import TorchTrainer

from golfray.core.gang import join_gang
from golfray.core.settings import settings_from_dict
from golfray.core.trial import run_trial

WORKERS = 2


def train_loop(config):
    """What each worker runs."""
    folder = pathlib.Path(config["folder"])
    outcome = run_trial(settings_from_dict(config["settings"]), join_gang("cpu"), folder)
    ray.train.report({"bpb": outcome["metrics"]["bpb/roundtrip"]})
    return outcome["phases"]


def drive(config, trials, folder):
    """The trainable: a trainer for each trial."""
    name = f"trial-{config['number']}"
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"settings": trials[config["number"]], "folder": f"{folder}/{name}"},
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(name=name, storage_path=f"{folder}/train"),
    )
    phases = trainer.fit().return_value
    tune.report({f"phase/{phase}": seconds for phase, seconds in phases.items()})


def main(settings_file, folder):
    trials = json.loads(pathlib.Path(settings_file).read_text())
    ray.init(num_cpus=WORKERS, log_to_driver=False)
    begun = time.time()
    # With a whole CPU for it, which is the default, two workers on two CPUs would wait for ever.
    trainable = tune.with_resources(
        tune.with_parameters(drive, trials=trials, folder=folder), {"node:__internal_head__": 0.001}
    )
    results = tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(len(trials))))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="plain", storage_path=f"{folder}/tune", verbose=0),
    ).fit()
    seconds = time.time() - begun
    phases = [
        {name.removeprefix("phase/"): value for name, value in result.metrics.items() if name.startswith("phase/")}
        for result in results
        if result.metrics is not None
    ]
    print(json.dumps({"seconds": seconds, "phases": phases}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
