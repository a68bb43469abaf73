"""Worker of step.py: two forms of the training step, measured in turn in the same processes.

Run under torchrun: ``forms.py SETTINGS.json STEPS PAIRS``. Rank 0 prints one JSON line: tokens/s of every block of each
form. Taking turns makes a busy neighbour slow both forms alike, so the ratio holds where the rates do not.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch

from golfray.core.gang import Gang, join_gang, leave_gang
from golfray.core.loop import Trainer
from golfray.core.model import build_model
from golfray.core.muon import orthogonalize
from golfray.core.optimizers import Optimizers
from golfray.core.runtime import choose_runtime
from golfray.core.settings import RunSettings, settings_from_dict
from golfray.core.shards import TokenStream, list_shards


def one_matrix_at_a_time(stack: torch.Tensor, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """The reference's form of Newton-Schulz: a call a matrix instead of a call a stack."""
    return torch.cat([orthogonalize(matrix[None], steps, dtype) for matrix in stack])


def make_trainer(settings: RunSettings, gang: Gang, compiled: bool, stacked: bool) -> Trainer:
    """A fresh trainer of one form, warmed up."""
    torch.manual_seed(settings.runtime.seed)
    model = build_model(settings.model, choose_runtime(settings, gang).dtype, gang.device)
    loss_of = torch.compile(model, dynamic=False, fullgraph=True) if compiled else model
    optimizers = Optimizers(model, settings, gang, orthogonalize if stacked else one_matrix_at_a_time)
    stream = TokenStream(list_shards(pathlib.Path(settings.data.folder), "train"))
    trainer = Trainer(model, loss_of, optimizers, stream, settings, gang)
    trainer.warm_up(3)
    return trainer


def tokens_per_second(trainer: Trainer, gang: Gang, steps: int) -> float:
    """Rate of a block of steps, from barrier to barrier."""
    gang.broadcast_floats([0.0])
    start = time.perf_counter()
    for step in range(steps):
        trainer.step(step, 0.1, 0.9)
    gang.broadcast_floats([0.0])
    return steps * trainer.settings.batch.tokens / (time.perf_counter() - start)


def main() -> None:
    """Measure the default form and the plain one in turn."""
    settings = settings_from_dict(json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
    steps, pairs = int(sys.argv[2]), int(sys.argv[3])
    gang = join_gang(settings.runtime.device)
    try:
        compiled = choose_runtime(settings, gang).compiled
        forms = {
            "default": make_trainer(settings, gang, compiled, True),
            "eager, stacked": make_trainer(settings, gang, False, True),
            "eager, one matrix at a time": make_trainer(settings, gang, False, False),
        }
        rates: dict[str, list[float]] = {name: [] for name in forms}
        for pair in range(pairs):
            for name in list(forms) if pair % 2 == 0 else list(reversed(forms)):
                rates[name].append(tokens_per_second(forms[name], gang, steps))
        if gang.rank == 0:
            print(json.dumps({"ranks": gang.world_size, "compiled": compiled, "rates": rates}), flush=True)
    finally:
        leave_gang()


if __name__ == "__main__":
    main()
