"""One rank of a gang: trains what the plan says and writes what it saw.

Started by test_ranks.py in the environment that torchrun gives a rank.
"""

import hashlib
import json
import pathlib
import sys

import torch

from golfray.core.clock import Clock
from golfray.core.gang import Gang, join_gang, leave_gang
from golfray.core.loop import Trainer
from golfray.core.model import build_model
from golfray.core.optimizers import Optimizers
from golfray.core.settings import RunSettings, settings_from_dict
from golfray.core.shards import TokenStream, list_shards
from golfray.core.train_frontier import run_frontier_trial
from golfray.core.trial import run_trial


def train(settings: RunSettings, gang: Gang) -> dict:
    """Losses, steps, clock readings and a hash of the weights that this rank ends with."""
    torch.manual_seed(settings.runtime.seed)
    model = build_model(settings.model, torch.float32, gang.device)
    stream = TokenStream(list_shards(pathlib.Path(settings.data.folder), "train"))
    optimizers = Optimizers(model, settings, gang)
    clock = Clock(gang)
    training = Trainer(model, model, optimizers, stream, settings, gang).run(clock, None)
    state = b"".join(tensor.contiguous().numpy().tobytes() for tensor in model.state_dict().values())
    return {
        "losses": [point["train/loss"] for point in training.curve],
        "steps": training.steps,
        "readings": clock.readings,
        "weights": hashlib.sha256(state).hexdigest(),
    }


def main(plan_path: str, folder: str) -> None:
    torch.set_num_threads(1)
    plan = json.loads(pathlib.Path(plan_path).read_text())
    gang = join_gang("cpu")
    try:
        seen = {name: train(settings_from_dict(values), gang) for name, values in plan["train"].items()}
        settings = settings_from_dict(plan["trial"])
        seen["trial"] = run_trial(settings, gang, pathlib.Path(folder) / "trial")
        settings = settings_from_dict(plan["frontier"])
        seen["frontier"] = run_frontier_trial(settings, gang, pathlib.Path(folder) / "frontier")
    finally:
        leave_gang()
    (pathlib.Path(folder) / f"rank{gang.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
