"""A real lane that trains on a mirror of the data, and what it measured as it formed."""

import json
import pathlib

import pytest
import torch

from golfray.sweep.executor import Finished, Started
from golfray.sweep.node_rules import NodeRules
from golfray.sweep.outcome import Kind

pytestmark = pytest.mark.slow


def test_a_trial_on_a_mirror(start_lanes, tiny_corpus, tmp_path):
    data = tiny_corpus.settings()
    study = start_lanes(data=data, rules=NodeRules(str(tmp_path / "mirror"), mirror_gb=0.01))
    sections = {
        "model": {"vocab_size": 320, "num_layers": 2, "model_dim": 32, "num_heads": 2, "num_kv_heads": 1},
        "data": {"folder": data.folder, "tokenizer": data.tokenizer},
        "batch": {"tokens": 512, "seq_len": 64, "slices": 2, "val_tokens": 2048},
        "stop": {"steps": 6, "seconds": None},
        "schedule": {"warmup_steps": 1},
        "runtime": {"seed": 0, "compile": "off", "device": "cpu"},
    }
    job = study.submit("", **sections)
    events = study.events_until(Finished, job)
    (started,) = [event for event in events if isinstance(event, Started)]
    (end,) = [event.outcome for event in events if isinstance(event, Finished)]
    assert end.kind is Kind.SCORED, end.reason
    (node,) = started.nodes
    assert (node.ranks, node.lane_ranks, node.device, node.torch) == (2, 2, "cpu", torch.__version__)
    assert node.matmul_tflops > 0
    assert node.reduce_gb_s > 0
    assert node.read_mb_s > 0
    (mirror,) = (tmp_path / "mirror").iterdir()
    shards = {path.name: path.read_bytes() for path in pathlib.Path(data.folder).glob("fineweb_*.bin")}
    copies = {path.name: path.read_bytes() for path in mirror.iterdir()}
    assert copies == shards | {tiny_corpus.tokenizer.name: tiny_corpus.tokenizer.read_bytes()}
    settings = json.loads((study.attempt(job) / "settings.json").read_text())
    assert settings["data"] == {"folder": data.folder, "tokenizer": data.tokenizer}
