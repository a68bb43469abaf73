"""GPTQ: columns are rounded one after the other, and those to come make up for each one's error (section 5.3)."""

import dataclasses
from collections.abc import Iterable

import torch

from golfray.core.clip import round_to_steps
from golfray.core.model import GPT, CastedLinear


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

    Keys are names of weights, so they fit the state dict; layers that are given the same input share one tensor. A tied
    token table is treated as the output head. ``batches``: int64 token ids (sequences, seq_len) on the model's device.
    """
    hessians: dict[str, torch.Tensor] = {}
    latest: list = [None, ""]

    def add(name: str, inputs: torch.Tensor) -> None:
        if latest[0] is inputs:
            hessians[name] = hessians[latest[1]]
            return
        rows = inputs.flatten(0, -2).float()
        hessians[name] = hessians[name].addmm_(rows.T, rows) if name in hessians else rows.T @ rows
        latest[:] = inputs, name

    hooks = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: add(f"{name}.weight", inputs[0]))
        for name, module in model.named_modules()
        if isinstance(module, CastedLinear)
    ]
    if model.settings.tie_embeddings:
        width, eps = (model.settings.model_dim,), model.settings.rms_eps
        hooks.append(
            model.blocks[-1].register_forward_hook(
                lambda _, __, out: add("tok_emb.weight", torch.nn.functional.rms_norm(out, width, eps=eps))
            )
        )
    count = 0
    try:
        with torch.no_grad():
            for tokens in batches:
                model.logits(tokens)
                count += 1
    finally:
        for hook in hooks:
            hook.remove()
    for hessian in set(hessians.values()):
        hessian /= count
    return hessians


def factor_hessians(hessians: dict[str, torch.Tensor], damping: float) -> dict[str, HessianFactor]:
    """:func:`factor_hessian` of each, once for those that are the same tensor."""
    factors = {id(hessian): factor_hessian(hessian, damping) for hessian in set(hessians.values())}
    return {name: factors[id(hessian)] for name, hessian in hessians.items()}


def factor_hessian(hessian: torch.Tensor, damping: float) -> HessianFactor:
    """Order the columns, damp the diagonal by ``damping`` times its mean, invert and factorize, in float64.

    Raises ``ValueError`` where the Hessian is not finite, or cannot be inverted even so.
    """
    matrix = hessian.double()
    diagonal = matrix.diagonal().clone()
    dead = diagonal == 0
    diagonal[dead] = 1.0
    order = torch.argsort(diagonal, descending=True, stable=True)
    matrix = matrix.diagonal_scatter(diagonal + damping * diagonal.mean())[order][:, order]
    try:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        return HessianFactor(order, dead[order], torch.linalg.cholesky(inverse, upper=True).float())
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(f"a Hessian is not positive at damping {damping:g}: {error}") from error


def gptq_round(
    values: torch.Tensor, steps: torch.Tensor, bits: int, factor: HessianFactor, block: int = 128
) -> torch.Tensor:
    """Integers as float32 (rows, columns) of a float32 matrix under given steps, (rows, 1) or (rows, columns).

    Dead columns become 0. The block size changes only how errors are added up, hence the speed.
    """
    work = values[:, factor.order]
    work[:, factor.dead] = 0.0
    whole, ordered = torch.empty_like(work), steps.expand_as(work)[:, factor.order]
    for start in range(0, work.shape[1], block):
        end = min(start + block, work.shape[1])
        part, upper = work[:, start:end], factor.upper[start:end]
        errors = torch.empty_like(part)
        for column in range(end - start):
            step, pivot = ordered[:, start + column], start + column
            whole[:, pivot] = round_to_steps(part[:, column], step, bits)
            errors[:, column] = (part[:, column] - whole[:, pivot] * step) / upper[column, pivot]
            part[:, column:].addr_(errors[:, column], upper[column, pivot:end], alpha=-1)
        work[:, end:].addmm_(errors, upper[:, end:], alpha=-1)
    return whole[:, torch.argsort(factor.order)]
