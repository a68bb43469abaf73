"""Muon: momentum orthogonalised by Newton-Schulz, on stacks of equal-shaped matrices, shared out over ranks."""

from collections.abc import Callable

import torch

from golfray.core.gang import Gang
from golfray.core.settings import MuonSettings

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.775, 2.0315)


def orthogonalize(stack: torch.Tensor, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """Newton-Schulz on a stack of matrices of shape (n, rows, cols), all arithmetic in ``dtype`` (section 3.7).

    X <- X / (norm(X) + 1e-7); then ``steps`` times A = X X^T, B = b A + (c A) A, X <- a X + B X. Tall matrices are
    transposed on the way. The result is times sqrt(max(1, rows / cols)).
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    rows, cols = stack.shape[-2:]
    x = stack.to(dtype)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    if rows > cols:
        x = x.transpose(-2, -1)
    for _ in range(steps):
        gram = x @ x.transpose(-2, -1)
        x = a * x + (b * gram + (c * gram) @ gram) @ x
    if rows > cols:
        x = x.transpose(-2, -1)
    return x * max(1.0, rows / cols) ** 0.5


def gradient_of(parameter: torch.nn.Parameter) -> torch.Tensor:
    """The parameter's gradient. Raises ``AssertionError`` if it has none: every parameter must receive one."""
    assert parameter.grad is not None, f"a parameter of shape {tuple(parameter.shape)} received no gradient"
    return parameter.grad


class Muon:
    """The optimizer of the 2-D block matrices (section 3.2).

    u <- m u + g; h = g + m u; w <- w (1 - lr wd) - lr X, X the orthogonalised h. Matrices of one shape form a stack;
    each rank owns a run of every stack, keeps the momentum of just those, and results are summed in one flat buffer.
    ``orthogonalize_stack`` may be a compiled form of :func:`orthogonalize`.
    """

    def __init__(
        self,
        matrices: list[torch.nn.Parameter],
        settings: MuonSettings,
        gang: Gang,
        orthogonalize_stack: Callable[[torch.Tensor, int, torch.dtype], torch.Tensor] = orthogonalize,
    ) -> None:
        self.settings, self.gang, self.orthogonalize_stack = settings, gang, orthogonalize_stack
        self.dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[settings.ns_dtype]
        shapes: dict[torch.Size, list[torch.nn.Parameter]] = {}
        for matrix in matrices:
            shapes.setdefault(matrix.shape, []).append(matrix)
        self.stacks = list(shapes.values())
        self.owned = [
            (len(stack) * gang.rank // gang.world_size, len(stack) * (gang.rank + 1) // gang.world_size)
            for stack in self.stacks
        ]
        self.momentum_buffers = [
            torch.zeros((last - first, *stack[0].shape), dtype=stack[0].dtype, device=stack[0].device)
            for stack, (first, last) in zip(self.stacks, self.owned, strict=True)
        ]

    @torch.no_grad()
    def step(self, lr: float, momentum: float) -> None:
        """One update from the gradients on the matrices."""
        updates, matrices = [], []
        for stack, (first, last), buffer in zip(self.stacks, self.owned, self.momentum_buffers, strict=True):
            update = torch.zeros((len(stack), *stack[0].shape), dtype=self.dtype, device=stack[0].device)
            if last > first:
                gradient = torch.stack([gradient_of(matrix) for matrix in stack[first:last]])
                buffer.mul_(momentum).add_(gradient)
                nesterov = gradient.add(buffer, alpha=momentum)
                update[first:last] = self.orthogonalize_stack(nesterov, self.settings.ns_steps, self.dtype)
            updates.append(update)
        if self.gang.world_size > 1:
            flat = self.gang.sum(torch.cat([update.flatten() for update in updates]))
            pieces = flat.split([update.numel() for update in updates])
            updates = [piece.view_as(update) for piece, update in zip(pieces, updates, strict=True)]
        for stack in self.stacks:
            matrices += [matrix.data for matrix in stack]
        if self.settings.weight_decay:
            torch._foreach_mul_(matrices, 1.0 - lr * self.settings.weight_decay)
        steps = [step for update in updates for step in update]
        steps = [step.to(matrix.dtype) for step, matrix in zip(steps, matrices, strict=True)]
        torch._foreach_add_(matrices, steps, alpha=-lr)

    def reset(self) -> None:
        """Forget all momentum, as if no step had been taken."""
        for buffer in self.momentum_buffers:
            buffer.zero_()
