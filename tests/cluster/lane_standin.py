"""What ranks run in the lane tests instead of a trial: small, real collectives, and misbehaviour on request.

``settings.data.folder`` says what to do: "steps", "raise:RANK", "until_stopped" or "deaf". With a tokenizer set, the
real trial runs. Each rank leaves ``rank-R.json`` in the job's folder: what it was told and which process it is.
"""

import json
import os
import time

import torch

from golfray.core.trial import run_trial

STEPS = 4


def run(settings, gang, folder, report):
    note = {"settings": settings.runtime.seed, "pid": os.getpid(), "threads": torch.get_num_threads()}
    with (folder / f"rank-{gang.rank}.json").open("a") as file:
        file.write(json.dumps(note) + "\n")
    if settings.data.tokenizer:
        return run_trial(settings, gang, folder, report)
    task, _, which = settings.data.folder.partition(":")
    reason, step, stopping = None, 0, False
    while not stopping and (task in ("until_stopped", "deaf") or step < STEPS):
        step += 1
        total = gang.sum(torch.full((8,), float(settings.runtime.seed + gang.rank), device=gang.device))
        if step == 2 and task == "raise" and gang.rank == int(which):
            raise ValueError(f"seed {settings.runtime.seed} is refused")
        if gang.rank == 0:
            reason = report({"step": step, "train/loss": total[0].item(), "elapsed_s": 0.1 * step})
        while task == "deaf":
            time.sleep(0.1)
        stopping = bool(gang.broadcast_floats([float(reason is not None)])[0])
        if task == "until_stopped":
            time.sleep(0.05)
    return {
        "kind": "stopped" if stopping else "scored",
        "reason": reason or "ran all steps",
        "metrics": {"sum": total[0].item(), "train/steps": float(step)},
        "phases": {"train": 0.1},
    }
