"""A trial small enough to run in about a second on one core."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from golfray.core.gang import Gang
from golfray.core.settings import RunSettings, settings_from_dict

ALONE = Gang(rank=0, world_size=1, device=torch.device("cpu"))

TINY: dict[str, dict[str, Any]] = {
    "model": {"num_layers": 3, "model_dim": 32, "num_heads": 4, "num_kv_heads": 2},
    "muon": {"momentum_warmup_steps": 10},
    "schedule": {"warmup_steps": 0, "warmdown_share": 0.5},
    "batch": {"tokens": 512, "seq_len": 32, "slices": 4, "val_tokens": 4096},
    "stop": {"steps": 12, "seconds": None},
    "export": {"keep_float_max_numel": 256, "scale_floor": 0.0},
    "runtime": {"device": "cpu", "dtype": "float32", "compile": "off", "log_points": 1000},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small shapes are slower on many threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_settings(tiny_corpus) -> Callable[..., RunSettings]:
    """Settings of a tiny trial on the tiny corpus; ``section={field: value}`` changes some."""

    def build(**changes: Any) -> RunSettings:
        values = {name: {**fields, **changes.pop(name, {})} for name, fields in TINY.items()}
        values["model"].setdefault("vocab_size", tiny_corpus.vocab_size)
        values["data"] = {"folder": str(tiny_corpus.folder), "tokenizer": str(tiny_corpus.tokenizer)}
        for name in [name for name in changes if isinstance(changes[name], dict)]:
            values[name] = {**values.get(name, {}), **changes.pop(name)}
        return dataclasses.replace(settings_from_dict(values), **changes)

    return build


@pytest.fixture
def alone() -> Gang:
    """A gang of one on the CPU."""
    return ALONE


@pytest.fixture(scope="session")
def trained_folder(tiny_settings, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of one finished tiny trial."""
    from golfray.core.trial import run_trial

    folder = tmp_path_factory.mktemp("trained")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    result = run_trial(tiny_settings(stop={"steps": 40}), ALONE, folder)
    torch.set_num_threads(before)
    assert result["kind"] == "scored"
    return folder
