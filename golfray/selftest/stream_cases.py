"""Cases about what a run is told from outside: loader, validation_split, lr_schedule, momentum_schedule."""

import pathlib
import tempfile
from typing import Any

from golfray.core.schedule import lr_multiplier, muon_momentum
from golfray.core.settings import MuonSettings, ScheduleSettings, StopSettings
from golfray.core.shards import TokenStream, validation_range
from golfray.selftest.inputs import write_formula_shards
from golfray.selftest.sections import Case, Context, Section


def compute_loader(case: Case, context: Context) -> dict[str, Any]:
    """The micro-batches that each rank gets; call c of rank r is slice c * W + r, as the trainer counts them."""
    world_size = case["world_size"]
    tokens = case["global_tokens"] // (world_size * case["grad_accum_steps"])
    batches = []
    with tempfile.TemporaryDirectory() as folder:
        stream = TokenStream(write_formula_shards(pathlib.Path(folder), case["shard_lengths"], case["vocab"]))
        for asked in case["batches"]:
            call, rank = asked["call"], asked["rank"]
            inputs, targets = stream.slice_batch(call * world_size + rank, tokens, case["seq_len"])
            batches.append(
                {
                    "call": call,
                    "rank": rank,
                    "x_shape": list(inputs.shape),
                    "x_first8": inputs.flatten()[:8].tolist(),
                    "y_last4": targets.flatten()[-4:].tolist(),
                    "x_sum": int(inputs.sum()),
                    "y_sum": int(targets.sum()),
                }
            )
    return {"batches": batches}


def compute_validation_split(case: Case, context: Context) -> dict[str, Any]:
    """The validation sequences of every rank."""
    world_size = case["world_size"]
    ranges = [list(validation_range(case["total_sequences"], rank, world_size)) for rank in range(world_size)]
    return {"ranges": ranges}


def compute_lr_schedule(case: Case, context: Context) -> dict[str, Any]:
    """The multiplier that a run with these limits sees at one step."""
    limit_ms = case["max_wallclock_ms"]
    stop = StopSettings(steps=case["iterations"], seconds=None if limit_ms is None else limit_ms / 1000.0)
    schedule = ScheduleSettings(warmdown_steps=case["warmdown_iters"])
    return {"lr_multiplier": lr_multiplier(schedule, stop, case["step"], case["elapsed_ms"] / 1000.0)}


def compute_momentum_schedule(case: Case, context: Context) -> dict[str, Any]:
    """Muon's momentum at one step."""
    settings = MuonSettings(
        momentum_start=case["start"], momentum_end=case["end"], momentum_warmup_steps=case["warmup_steps"]
    )
    return {"momentum": muon_momentum(settings, StopSettings(steps=None, seconds=None), case["step"], 0.0)}


LOADER = Section(
    frozenset({"shard_lengths", "vocab", "world_size", "global_tokens", "seq_len", "grad_accum_steps"}),
    lambda case: f"{len(case['shard_lengths'])} shards, {case['world_size']} rank(s) x {case['grad_accum_steps']}",
    compute_loader,
)
VALIDATION_SPLIT = Section(
    frozenset({"total_sequences", "world_size"}),
    lambda case: f"{case['total_sequences']} sequences on {case['world_size']} rank(s)",
    compute_validation_split,
)
LR_SCHEDULE = Section(
    frozenset({"step", "elapsed_ms", "iterations", "warmdown_iters", "max_wallclock_ms"}),
    lambda case: f"step {case['step']}, {case['elapsed_ms']:g} ms of {case['max_wallclock_ms']}",
    compute_lr_schedule,
)
MOMENTUM_SCHEDULE = Section(
    frozenset({"step", "start", "end", "warmup_steps"}),
    lambda case: f"step {case['step']} of {case['warmup_steps']}",
    compute_momentum_schedule,
)
