"""Weights like those that a run will end with, drawn without training: for sizes that no formula has.

Where a row is scaled by its largest value, the further that lies from the typical one, the fewer different integers are
left for the codec. Weights begin uniform, which leaves little to compress, and end bell-shaped: what decides is how far
training carries them from where they began. Here that distance is the one of a random walk under the run's schedules,
and weights are drawn that far from a real initial state.

The constants were fitted to trials at laptop scale. docs/log.md has the errors on trials that they were not fitted to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch

from golfray.core.model import build_model
from golfray.core.schedule import lr_multiplier, muon_momentum
from golfray.core.settings import ModelSettings, RunSettings

# Distance over that of a walk whose every step but for the momentum is independent.
_MUON_WALK = 0.72
_ADAM_WALK = 0.78

# Standard deviation of the logarithm of the columns' sizes: the inputs of a matrix are not all used alike, which gives
# rows a longer tail. Weight decay adds to it where channels are not used at all.
_COLUMN_SPREAD = {"attn.c_q": 0.1, "attn.c_k": 0.25, "attn.c_v": 0.25, "mlp.proj": 0.3, "tok_emb": 0.05}
_SPREAD_BY_DECAY = 0.025

# Rows of tokens that never occur all move alike: a common part, and beside it one update's worth of their own.
_UNSEEN_COMMON = (0.2, 0.2)
_UNSEEN_OWN = 0.46
_UNSEEN_SPREAD = 0.6

# A walk of more has diverged long before.
_LONGEST = 1e4
_SAMPLES = 200


@dataclasses.dataclass(frozen=True)
class Walk:
    """How far training carries a weight.

    ``muon`` and ``adam``: standard deviations in units of one full update's entry, learning rate of Muon included.
    ``decayed``: the sum of all decay, so that exp(-decayed) is left of the initial weight.
    """

    muon: float
    adam: float
    decayed: float


def walk_of(settings: RunSettings, steps: int) -> Walk:
    """The walk of a run that takes ``steps`` steps, be it that its time is over then or that it has made them all.

    Successive updates point the same way for about (1 + m) / (1 - m) steps under a momentum m, so the variance grows by
    that many squared updates a step; decay shrinks what is there.
    """
    # Whose square is a number: where a walk ends that is so long, is no longer told apart.
    stop, rate = settings.stop, min(settings.optimizer.matrix_lr, 1e100)
    samples = min(_SAMPLES, max(steps, 1))
    stride = max(steps, 1) / samples
    muon = adam = decayed = 0.0
    for sample in range(samples):
        step = (sample + 0.5) * stride
        elapsed = (stop.seconds or 0.0) * step / max(steps, 1)
        multiplier = lr_multiplier(settings.schedule, stop, int(step), elapsed)
        momentum = muon_momentum(settings.muon, stop, int(step), elapsed)
        # No longer than the run so far, both ways.
        coherent = 2 * step + 1
        if momentum < 1:
            coherent = min((1 + momentum) / (1 - momentum), coherent)
        decay = rate * multiplier * settings.muon.weight_decay * stride
        # What is added during a stride decays in it too.
        added = -math.expm1(-2 * decay) / (2 * decay) if decay > 0 else 1.0
        muon = muon * math.exp(-2 * decay) + (rate * multiplier) ** 2 * coherent * stride * added
        adam += multiplier**2 * stride
        decayed += decay
    return Walk(min(math.sqrt(muon), _LONGEST), min(math.sqrt(adam), _LONGEST), decayed)


def initial_state(model: ModelSettings, seed: int) -> dict[str, torch.Tensor]:
    """A model's state dict before training, float32 on the CPU; torch's global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(model, torch.float32, torch.device("cpu")).state_dict()


def trained_state(
    state: dict[str, torch.Tensor], settings: RunSettings, walk: Walk, unseen: Sequence[int]
) -> dict[str, torch.Tensor]:
    """Weights that a walk away from the initial ``state``; the same numbers every time.

    ``unseen``: ids of tokens that the run never meets.
    """
    draw = torch.Generator().manual_seed(settings.runtime.seed)
    rates, tied = settings.optimizer, settings.model.tie_embeddings
    # Which of the two tables is pushed away from tokens that never come.
    pushed = "tok_emb.weight" if tied else "lm_head.weight"
    adam = {"tok_emb.weight": rates.tied_embed_lr if tied else rates.embed_lr, "lm_head.weight": rates.head_lr}
    trained = {}
    for name, tensor in state.items():
        if name.startswith("blocks.") and name.endswith(".weight"):
            trained[name] = tensor * math.exp(-walk.decayed) + _muon_drift(name, tensor, walk, draw)
            continue
        rate = min(adam.get(name, rates.scalar_lr), _LONGEST)
        drift = _noise(name, tensor, 0.0, draw) * rate * walk.adam * _ADAM_WALK
        if name == pushed and unseen:
            drift[list(unseen)] = _unseen_rows(len(unseen), tensor.shape[1], rate, walk, draw)
        trained[name] = tensor + drift
    return trained


def _muon_drift(name: str, tensor: torch.Tensor, walk: Walk, draw: torch.Generator) -> torch.Tensor:
    """An orthogonal matrix of r x c has entries of 1 / sqrt(max(r, c)); Muon scales it by sqrt(max(1, r / c))."""
    rows, columns = tensor.shape
    entry = math.sqrt(max(1.0, rows / columns) / max(rows, columns))
    return _noise(name, tensor, walk.decayed, draw) * entry * walk.muon * _MUON_WALK


def _noise(name: str, tensor: torch.Tensor, decayed: float, draw: torch.Generator) -> torch.Tensor:
    noise = torch.randn(tensor.shape, generator=draw)
    spread = next((spread for part, spread in _COLUMN_SPREAD.items() if part in name), 0.0)
    if "mlp.proj" in name:
        spread += _SPREAD_BY_DECAY * decayed
    return noise * torch.randn(tensor.shape[-1:], generator=draw).mul(spread).exp() if spread else noise


def _unseen_rows(rows: int, columns: int, rate: float, walk: Walk, draw: torch.Generator) -> torch.Tensor:
    base, share = _UNSEEN_COMMON
    common = torch.randn(columns, generator=draw) * (base + share * rate * walk.adam * _ADAM_WALK)
    sizes = torch.randn(columns, generator=draw).mul(_UNSEEN_SPREAD).exp()
    return common + torch.randn(rows, columns, generator=draw) * sizes * _UNSEEN_OWN * rate
