"""What `golfray show nodes` says."""

import json
import pathlib

from golfray.report.nodes import node_lines, nodes_document
from tests.cli.documented import read_tables
from tests.sweep.test_node_probe import node
from tests.sweep.test_step_times import played

A = node("a")
B = node("b", matmul_tflops=500.0, read_mb_s=None, reduce_gb_s=None, mhz=1200)


def test_each_node_with_what_is_slow_and_the_steps():
    lines = node_lines(played(([A], 40.0, 9), ([B], 56.0, 9), ([A], 42.0, 9)))
    assert lines == [
        "study muon: 2 nodes",
        "a (10.0.0.1), NVIDIA H100 80GB HBM3: 2 trials, 8 ranks of a lane",
        "  matrix products 700 TFLOP/s, all-reduce 150 GB/s a rank, reading 2,000 MB/s, 1,980 of 1,980 MHz, probed in "
        "4.0 s",
        "  Python 3.11.7, torch 2.13.0, CUDA 12.8, NCCL 2.27.3, driver 570.86.15",
        "b (10.0.0.2), NVIDIA H100 80GB HBM3: 1 trial, 8 ranks of a lane",
        "  matrix products 500 TFLOP/s, 1,200 of 1,980 MHz, probed in 4.0 s",
        "  Python 3.11.7, torch 2.13.0, CUDA 12.8, NCCL 2.27.3, driver 570.86.15",
        "  SLOW matrix products: 1.40 times the time, against that of the one other node",
        "ms a step of the same work, 3 trials from t000 on:",
        "  a (10.0.0.1): 41.0 (median of 2 trials), 0.73 times the others'",
        "  b (10.0.0.2): 56.0 (median of 1 trial), 1.37 times the others' SLOW",
    ]


def test_the_document_is_as_its_page_says():
    document = nodes_document(played(([A], 40.0, 9), ([A, B], 56.0, 9)), pathlib.Path("studies/muon"))
    assert read_tables().mistakes(json.loads(json.dumps({"schema": "golfray/1", "kind": "nodes", **document}))) == []
    assert [row["trials"] for row in document["nodes"]] == [[0, 1], [1]]
    assert [place["times"] for place in document["steps"][0]["places"]] == [40 / 56, 56 / 40]


def test_a_log_that_names_no_node():
    (line,) = node_lines(played(([], 40.0, 9)))
    assert line.startswith("study muon: its log names no node")
