"""Training as the vector files define it: one rank, one slice a step, full learning rate, Adam not fused."""

import pathlib
from collections.abc import Iterator
from typing import Any

import torch

from golfray.core.gang import Gang
from golfray.core.loop import Trainer
from golfray.core.model import GPT, build_model
from golfray.core.optimizers import Optimizers
from golfray.core.schedule import lr_multiplier, muon_momentum
from golfray.core.settings import (
    BatchSettings,
    ModelSettings,
    MuonSettings,
    OptimizerSettings,
    RunSettings,
    ScheduleSettings,
    StopSettings,
)
from golfray.core.shards import TokenStream
from golfray.selftest.errors import SelftestError
from golfray.selftest.inputs import fill_with_formula

ALONE = Gang(rank=0, world_size=1, device=torch.device("cpu"))


def model_settings(config: dict[str, Any]) -> ModelSettings:
    """The network that a case describes. Raises ``SelftestError`` on a name that core does not have."""
    known = ModelSettings.__dataclass_fields__
    unknown = [name for name in config if name not in known]
    if unknown:
        raise SelftestError(f"config has unknown names {unknown}; known: {list(known)}")
    return ModelSettings(**config)


def formula_model(config: dict[str, Any], weight_scale: float, dtype: torch.dtype = torch.float32) -> GPT:
    """A model on the CPU, stored by core's precision rules for ``dtype`` and filled with formula weights."""
    model = build_model(model_settings(config), dtype, ALONE.device)
    fill_with_formula(model, weight_scale)
    return model


def training_settings(case: dict[str, Any], steps: int) -> RunSettings:
    """Settings of a case with fields config, batch, seq_len, lrs, muon_momentum and adam."""
    rates, momentum, adam = case["lrs"], case["muon_momentum"], case["adam"]
    return RunSettings(
        model=model_settings(case["config"]),
        optimizer=OptimizerSettings(
            matrix_lr=rates["matrix"],
            scalar_lr=rates["scalar"],
            tied_embed_lr=rates["tok"],
            embed_lr=rates["tok"],
            head_lr=rates["head"],
            beta1=adam["betas"][0],
            beta2=adam["betas"][1],
            adam_eps=adam["eps"],
            adam_fused=False,
        ),
        muon=MuonSettings(
            momentum_start=momentum["start"],
            momentum_end=momentum["end"],
            momentum_warmup_steps=momentum["warmup_steps"],
            ns_dtype="bfloat16",
        ),
        schedule=ScheduleSettings(warmdown_steps=0, warmup_steps=0),
        batch=BatchSettings(tokens=case["batch"] * case["seq_len"], seq_len=case["seq_len"], slices=1),
        stop=StopSettings(steps=steps, seconds=None),
    )


def train_steps(model: GPT, settings: RunSettings, paths: list[pathlib.Path]) -> Iterator[float]:
    """Train in place on some shards, yielding each step's loss in nats per token before that step's update."""
    optimizers = Optimizers(model, settings, ALONE)
    trainer = Trainer(model, model, optimizers, TokenStream(paths), settings, ALONE)
    assert settings.stop.steps is not None
    for step in range(settings.stop.steps):
        multiplier = lr_multiplier(settings.schedule, settings.stop, step, 0.0)
        yield float(trainer.step(step, multiplier, muon_momentum(settings.muon, settings.stop, step, 0.0)))
