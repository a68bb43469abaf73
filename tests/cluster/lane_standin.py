"""What ranks run in the lane tests instead of a trial: small, real collectives, and misbehaviour on request.

``settings.data.folder`` says what to do: "train", or "raise:RANK", "die:RANK", "until_stopped", "deaf".
Each rank leaves ``rank-R.json`` in the job's folder: what it was told and which process it is.
"""

import json
import os
import signal
import time

import torch

STEPS = 4


def run(settings, gang, folder, report):
    told = {"seed": settings.runtime.seed, "pid": os.getpid(), "threads": torch.get_num_threads(), "begun": time.time()}
    told["draw"] = torch.rand(1).item()
    (folder / f"rank-{gang.rank}.json").write_text(json.dumps(told))
    task, _, which = settings.data.folder.partition(":")
    reason, step = None, 0
    while reason is None and (task in ("until_stopped", "deaf") or step < STEPS):
        step += 1
        total = gang.sum(torch.full((8,), float(settings.runtime.seed + gang.rank), device=gang.device))
        if step == 2 and task == "raise" and gang.rank == int(which):
            raise ValueError(f"seed {settings.runtime.seed} is refused")
        if step == 2 and task == "die" and gang.rank == int(which):
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "deaf":
            time.sleep(3600)
        stop = 0.0
        if gang.rank == 0:
            reason = report({"step": step, "train/loss": total[0].item(), "elapsed_s": 0.1 * step})
            stop = float(reason is not None)
        if gang.broadcast_floats([stop])[0]:
            reason = reason or "rank 0 said so"
        if task == "until_stopped":
            time.sleep(0.05)
    content = total.numpy().tobytes() + torch.rand(64).numpy().tobytes()
    if gang.rank == 0:
        (folder / "artifact.bin").write_bytes(content)
    (folder / f"rank-{gang.rank}.json").write_text(json.dumps({**told, "ended": time.time()}))
    return {
        "kind": "scored" if reason is None else "stopped",
        "reason": reason or "ran all steps",
        "metrics": {"bpb/roundtrip": total[0].item(), "train/steps": float(step)},
        "phases": {"train": 0.1},
        "artifact": "artifact.bin",
    }
