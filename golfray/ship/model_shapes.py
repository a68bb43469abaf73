"""Names and shapes of a model's tensors, and how those of a file differ from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from golfray.core.model import GPT
from golfray.core.settings import ModelSettings

_MOST_NAMED = 5


def model_shapes(settings: ModelSettings) -> dict[str, torch.Size]:
    """Shape of every tensor of a model, in the order of its state dict; the model itself takes no memory."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in GPT(settings).state_dict().items()}


def why_no_fit(shapes: Mapping[str, tuple[int, ...]], own: Mapping[str, tuple[int, ...]]) -> str | None:
    """What of ``shapes`` is not ``own``, those of the model, each tensor named, up to 5; None where all fit."""
    wrong = [
        f"{name[:80]} is {tuple(shapes[name]) if name in shapes else 'missing'}, the model has "
        f"{tuple(own[name]) if name in own else 'no such tensor'}"
        for name in dict.fromkeys((*own, *shapes))
        if shapes.get(name) != own.get(name)
    ]
    if not wrong:
        return None
    rest = f" ({len(wrong)} in all)" if len(wrong) > _MOST_NAMED else ""
    return f"does not fit the model: {'; '.join(wrong[:_MOST_NAMED])}{rest}"
