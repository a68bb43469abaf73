"""Fifty real trials in one lane: its ranks need no more memory at the end than at the beginning."""

import pathlib
import re
import statistics

import pytest

from golfray.sweep.outcome import Kind

pytestmark = pytest.mark.slow

TRIALS = 50
FEW = 10


def own_bytes(pid):
    """Memory that a process has asked for. Pages of files do not count: the part of a library's pages that is put down
    to a process grows as others that share them end.
    """
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^RssAnon:\s+(\d+) kB$", status, re.M)[1])


def test_fifty_trials_in_one_lane(start_lanes, tiny_corpus):
    lanes = start_lanes()
    # The ranks are known by a job that says which processes they are.
    first = lanes.submit("steps")
    lanes.outcome(first)
    pids = [lanes.pid(first, rank) for rank in (0, 1)]
    used = {pid: [] for pid in pids}
    for number in range(TRIALS):
        outcome = lanes.outcome(
            lanes.submit(
                "",
                seed=number,
                model={"vocab_size": 320, "num_layers": 2, "model_dim": 64, "num_heads": 2, "num_kv_heads": 1},
                batch={"tokens": 2048, "seq_len": 64, "slices": 2, "val_tokens": 2048},
                stop={"steps": 12, "seconds": None},
                schedule={"warmup_steps": 1},
                data={"folder": str(tiny_corpus.folder), "tokenizer": str(tiny_corpus.tokenizer)},
                runtime={"seed": number, "compile": "off", "device": "cpu"},
            )
        )
        assert outcome.kind in (Kind.SCORED, Kind.INFEASIBLE)
        for pid in pids:
            used[pid].append(own_bytes(pid) / 2**20)
    for rank, pid in enumerate(pids):
        begin, end = statistics.mean(used[pid][:FEW]), statistics.mean(used[pid][-FEW:])
        print(f"rank {rank}: first {FEW} {begin:.1f} MiB, last {FEW} {end:.1f} MiB, {used[pid][0]:.1f} after the first")
        # One such trial's weights, gradients, moments and validation are a few MiB; fifty kept would be over a hundred.
        assert end < begin + 8.0
