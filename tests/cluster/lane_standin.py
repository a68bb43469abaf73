"""What ranks run in the lane tests instead of a trial: small, real collectives, and misbehaviour on request.

``settings.data.folder`` says what to do: "steps"; "until_stopped" or "deaf" (train on, hearing a request to stop or
not); "WHAT:RANK", that rank does ``WHAT`` of :data:`MISDEEDS` at its second step; "slow:PHASE" or "hang:PHASE", that
phase takes ``SLOW_SECONDS``, or for ever. With a tokenizer set, the real trial runs. Each rank leaves ``rank-R.json``
in the job's folder: what it was told and which process it is.
"""

import ctypes
import json
import os
import time

import numpy
import torch

from golfray.core.trial import run_trial

STEPS = 4
SLOW_SECONDS = 4.0
BEFORE_TRAINING, AFTER_TRAINING = ("data", "compile"), ("validate", "export", "score")


def refuse(settings):
    raise ValueError(f"seed {settings.runtime.seed} is refused")


def need_a_petabyte(settings):
    numpy.empty(2**50, dtype=numpy.uint8)


def crash_in_native_code(settings):
    ctypes.string_at(0)


def eat_all_memory(settings):
    pieces = []
    while True:
        pieces.append(b"x" * 2**24)


def leak(settings):
    KEPT.append(numpy.ones(2**25))


KEPT = []
WRONGS = (refuse, need_a_petabyte, crash_in_native_code, eat_all_memory, leak)
MISDEEDS = {function.__name__: function for function in WRONGS}


def run(settings, gang, folder, report, enter):
    note = {"settings": settings.runtime.seed, "pid": os.getpid(), "threads": torch.get_num_threads()}
    note["compile_cache"] = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    with (folder / f"rank-{gang.rank}.json").open("a") as file:
        file.write(json.dumps(note) + "\n")
    if settings.data.tokenizer:
        return run_trial(settings, gang, folder, report, enter)
    task, _, which = settings.data.folder.partition(":")

    def begin(phase):
        print(f"rank {gang.rank} enters {phase}")
        if gang.rank == 0:
            enter(phase)
        if phase == which:
            time.sleep(SLOW_SECONDS if task == "slow" else 1e6)

    for phase in BEFORE_TRAINING:
        begin(phase)
    begin("train")
    reason, step, stopping = None, 0, False
    while not stopping and (task in ("until_stopped", "deaf") or step < STEPS):
        step += 1
        total = gang.sum(torch.full((8,), float(settings.runtime.seed + gang.rank), device=gang.device))
        if step == 2 and task in MISDEEDS and gang.rank == int(which):
            MISDEEDS[task](settings)
        if gang.rank == 0:
            reason = report({"step": step, "train/loss": total[0].item(), "elapsed_s": 0.1 * step})
        while task == "deaf":
            time.sleep(0.1)
        stopping = bool(gang.broadcast_floats([float(reason is not None)])[0])
        if task == "until_stopped":
            time.sleep(0.05)
    for phase in () if stopping else AFTER_TRAINING:
        begin(phase)
    return {
        "kind": "stopped" if stopping else "scored",
        "reason": reason or "ran all steps",
        "metrics": {"sum": total[0].item(), "train/steps": float(step)},
        "phases": {"train": 0.1},
    }
