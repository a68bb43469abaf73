"""The probe itself, on this machine: a gang of one, and two real ranks in a process group of their own."""

import math
import pathlib
import subprocess
import sys

import pytest
import torch

from golfray.cluster.probe import probe_rank
from golfray.core.gang import Gang

ROOT = pathlib.Path(__file__).parents[2]
ALONE = Gang(0, 1, torch.device("cpu"))
TWO = """
import datetime, os, sys, torch
import torch.distributed as distributed
from golfray.cluster import probe
from golfray.core.gang import Gang

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
if sys.argv[3] == "late" and rank == 1:
    sys.stdin.read()
    os._exit(0)
if sys.argv[3] == "late":
    probe.LIMIT_SECONDS = 1.0
try:
    found = probe.probe_rank(
        Gang(rank, 2, torch.device("cpu")), node="n", address="127.0.0.1", leads_node=False, shard=None
    )
    print("found", found.reduce_gb_s)
except probe.ProbeFailed as failed:
    print("failed", failed)
os._exit(0)
"""


def test_one_rank(tiny_corpus):
    shard = tiny_corpus.folder / "fineweb_train_000000.bin"
    found = probe_rank(ALONE, node="n", address="10.0.0.1", leads_node=True, shard=shard)
    assert (found.rank, found.node, found.address, found.device) == (0, "n", "10.0.0.1", "cpu")
    assert found.reduce_gb_s is None
    assert 0 < found.matmul_tflops < math.inf
    assert 0 < found.read_mb_s < math.inf
    assert (found.torch, found.cuda, found.driver) == (torch.__version__, torch.version.cuda, None)
    assert found.seconds > 0
    # Only one rank of a node reads for it.
    assert probe_rank(ALONE, node="n", address="", leads_node=False, shard=shard).read_mb_s is None


def test_it_leaves_generators_as_they_were():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    probe_rank(ALONE, node="n", address="", leads_node=False, shard=None)
    assert torch.equal(torch.rand(4), expected)


def two_ranks(tmp_path, how):
    command = [sys.executable, "-c", TWO]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store"), how],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = ranks[0].communicate()[0]
    ranks[1].communicate()
    return said


@pytest.mark.slow
def test_two_ranks(tmp_path):
    word, value = two_ranks(tmp_path, "both").split()
    assert word == "found"
    assert 0 < float(value) < math.inf


@pytest.mark.slow
def test_a_collective_that_is_never_over_is_said(tmp_path):
    said = two_ranks(tmp_path, "late")
    assert said.startswith("failed an all-reduce over the lane's ranks was not over 1 s after the probe began")
