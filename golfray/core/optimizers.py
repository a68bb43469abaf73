"""The four parameter groups of the baseline and the one object that steps them all (section 3.2)."""

from collections.abc import Callable

import torch

from golfray.core.gang import Gang
from golfray.core.model import GPT, is_control
from golfray.core.muon import Muon, orthogonalize
from golfray.core.settings import RunSettings


def parameter_groups(model: GPT) -> dict[str, list[torch.nn.Parameter]]:
    """Token table, head, 2-D block matrices without control names, and everything else in the blocks plus skip weights.

    Every parameter is in exactly one group; ``AssertionError`` names those that are not.
    """
    groups: dict[str, list[torch.nn.Parameter]] = {"table": [], "head": [], "matrix": [], "scalar": []}
    missed = []
    for name, parameter in model.named_parameters():
        if name == "tok_emb.weight":
            groups["table"].append(parameter)
        elif name == "lm_head.weight":
            groups["head"].append(parameter)
        elif name.startswith("blocks.") and parameter.ndim == 2 and not is_control(name):
            groups["matrix"].append(parameter)
        elif name.startswith("blocks.") or name == "skip_weights":
            groups["scalar"].append(parameter)
        else:
            missed.append(name)
    grouped = [id(parameter) for members in groups.values() for parameter in members]
    assert not missed, f"parameters in no optimizer group: {missed}"
    assert len(set(grouped)) == len(grouped), "a parameter is in two optimizer groups"
    return groups


class Optimizers:
    """Muon for the matrices, Adam for the rest; one learning-rate multiplier scales every base rate."""

    def __init__(
        self,
        model: GPT,
        settings: RunSettings,
        gang: Gang,
        orthogonalize_stack: Callable[[torch.Tensor, int, torch.dtype], torch.Tensor] = orthogonalize,
    ) -> None:
        rates = settings.optimizer
        groups = parameter_groups(model)
        self.parameters = list(model.parameters())
        self.grad_clip = rates.grad_clip
        self.matrix_lr = rates.matrix_lr
        self.muon = Muon(groups["matrix"], settings.muon, gang, orthogonalize_stack)
        table_lr = rates.tied_embed_lr if settings.model.tie_embeddings else rates.embed_lr
        adam_groups = [
            {"params": groups[name], "lr": lr, "base_lr": lr}
            for name, lr in (("table", table_lr), ("head", rates.head_lr), ("scalar", rates.scalar_lr))
            if groups[name]
        ]
        self.adam = torch.optim.Adam(
            adam_groups,
            betas=(rates.beta1, rates.beta2),
            eps=rates.adam_eps,
            weight_decay=rates.adam_weight_decay,
            decoupled_weight_decay=True,
            fused=rates.adam_fused,
        )

    @torch.no_grad()
    def clip(self) -> None:
        """Scale all gradients by min(1, grad_clip / (norm + 1e-6)), norm over all parameters; 0 means never."""
        if self.grad_clip > 0.0:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.grad_clip)

    def step(self, multiplier: float, momentum: float) -> None:
        """Update every parameter once, then forget the gradients."""
        self.clip()
        for group in self.adam.param_groups:
            group["lr"] = group["base_lr"] * multiplier
        self.adam.step()
        self.muon.step(self.matrix_lr * multiplier, momentum)
        for parameter in self.parameters:
            parameter.grad = None

    def reset(self) -> None:
        """Forget every moment and momentum, as if no step had been taken."""
        self.adam.state.clear()
        self.muon.reset()
