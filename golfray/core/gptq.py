"""GPTQ: columns are rounded one after the other, and those to come make up for each one's error (section 5.3)."""

import dataclasses
from collections.abc import Iterable

import torch

from golfray.core.clip import round_to_steps
from golfray.core.model import GPT, CastedLinear

GPTQ_BLOCK = 128


@dataclasses.dataclass(frozen=True)
class HessianFactor:
    """What GPTQ needs of a Hessian, the same for every bit-width and clip.

    ``order``: columns by falling diagonal. ``dead``: columns, in that order, whose input was always 0. ``upper``: upper
    Cholesky factor, float32, of the inverse of the damped Hessian in that order.
    """

    order: torch.Tensor
    dead: torch.Tensor
    upper: torch.Tensor


def collect_hessians(model: GPT, batches: Iterable[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Sum of x x^T over the inputs x of each linear layer, over the number of batches: float32 (inputs, inputs).

    Keys are names of weights, so they fit the state dict; layers with one input share one tensor. A tied token table is
    treated as the output head. ``batches`` holds int64 token ids (sequences, seq_len) on the model's device. Raises
    ``ValueError`` where there is none.
    """
    hessians: dict[str, torch.Tensor] = {}
    seen: list[torch.Tensor] = []

    def add(name: str, inputs: torch.Tensor) -> None:
        # q, k and v are given the very same tensor, one after the other.
        if seen and seen[0] is inputs:
            hessians[name] = hessians[str(last[0])]
            return
        rows = inputs.detach().flatten(0, -2).float()
        hessians[name] = hessians[name].addmm_(rows.T, rows) if name in hessians else rows.T @ rows
        seen[:], last[:] = [inputs], [name]

    last: list[str] = []
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, CastedLinear):
            key = f"{name}.weight"
            hooks.append(module.register_forward_pre_hook(lambda _, inputs, key=key: add(key, inputs[0])))
    if model.settings.tie_embeddings:
        eps = model.settings.rms_eps

        def add_table(module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            add("tok_emb.weight", torch.nn.functional.rms_norm(output, output.shape[-1:], eps=eps))

        hooks.append(model.blocks[-1].register_forward_hook(add_table))
    count = 0
    try:
        with torch.no_grad():
            for tokens in batches:
                model.logits(tokens)
                count += 1
    finally:
        for hook in hooks:
            hook.remove()
    if not count:
        raise ValueError("no batch of tokens to calibrate with")
    for hessian in {id(hessian): hessian for hessian in hessians.values()}.values():
        hessian /= count
    return hessians


def factor_hessian(hessian: torch.Tensor, damping: float) -> HessianFactor:
    """Order the columns, damp the diagonal by ``damping`` times its mean, invert and factorize, in float64.

    Raises ``ValueError`` where the Hessian is not finite, or cannot be inverted even so.
    """
    matrix = hessian.double()
    diagonal = matrix.diagonal().clone()
    dead = diagonal == 0
    diagonal[dead] = 1.0
    order = torch.argsort(diagonal, descending=True, stable=True)
    matrix = matrix.clone()
    matrix.diagonal().copy_(diagonal + damping * diagonal.mean())
    matrix = matrix[order][:, order]
    lower, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(torch.isfinite(matrix).all()) or bool(failed):
        raise ValueError(f"Hessian of {tuple(hessian.shape)} is not finite or not positive at damping {damping:g}")
    upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
    if bool(failed):
        raise ValueError(f"inverse Hessian of {tuple(hessian.shape)} is not positive at damping {damping:g}")
    return HessianFactor(order, dead[order], upper.float())


def gptq_round(
    values: torch.Tensor, steps: torch.Tensor, bits: int, factor: HessianFactor, block: int = GPTQ_BLOCK
) -> tuple[torch.Tensor, float]:
    """Integers as float32 (rows, columns), and the mean squared error, of a float32 matrix under given steps.

    ``steps`` is float32 of (rows, 1) or (rows, columns). Dead columns become 0. The block size changes only how errors
    are added up, hence the speed.
    """
    work = values[:, factor.order]
    work[:, factor.dead] = 0.0
    target, whole = work.clone(), torch.empty_like(work)
    ordered = steps[:, factor.order] if steps.shape[1] > 1 else steps.expand(-1, work.shape[1])
    for start in range(0, work.shape[1], block):
        end = min(start + block, work.shape[1])
        upper, part = factor.upper[start:end, start:end], work[:, start:end]
        errors = torch.empty_like(part)
        for column in range(end - start):
            step = ordered[:, start + column]
            whole[:, start + column] = round_to_steps(part[:, column], step, bits)
            errors[:, column] = (part[:, column] - whole[:, start + column] * step) / upper[column, column]
            part[:, column:].addr_(errors[:, column], upper[column, column:], alpha=-1)
        work[:, end:].addmm_(errors, factor.upper[start:end, end:], alpha=-1)
    error = float((target - whole * ordered).square().mean()) if whole.numel() else 0.0
    return whole[:, torch.argsort(factor.order)], error
