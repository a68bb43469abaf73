"""Bits per byte of a checkpoint's weights, whole or in part as an export gives them back, on reserved sequences."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy
import torch

from golfray.core.byte_table import ByteTable
from golfray.core.model import GPT

# Tokens scored at once on a CPU: with more, logits leave the caches, and their memory is fetched anew each time.
_CPU_TOKENS = 512
_GPU_TOKENS = 65_536


class ReserveScorer:
    """Scores weights on the sequences of a reserve, of which it counts the bytes once.

    ``model``: is overwritten. ``weights``: the float weights, used wherever a call does not say otherwise. ``tokens``:
    (sequences, seq_len + 1). ``threads`` score side by side, which changes no number.
    """

    def __init__(
        self,
        model: GPT,
        weights: dict[str, torch.Tensor],
        tokens: numpy.ndarray,
        table: ByteTable,
        threads: int = 1,
    ) -> None:
        self._model, self._weights = model, weights
        self._pool = ThreadPoolExecutor(threads)
        self._device = next(model.parameters()).device
        self._tokens = torch.from_numpy(tokens.astype(numpy.int64))
        self.text_bytes = numpy.array([table.count(row[:-1], row[1:]) for row in tokens], numpy.float64)

    @property
    def sequences(self) -> int:
        """How many there are."""
        return len(self._tokens)

    def nats(self, weights: dict[str, torch.Tensor], first: int, end: int) -> numpy.ndarray:
        """Nats of each of the sequences ``first`` .. ``end`` - 1 under ``weights`` over the float ones, float64."""
        with torch.no_grad():
            for name, target in self._model.state_dict().items():
                target.copy_(weights.get(name, self._weights[name]))
        width = self._tokens.shape[1] - 1
        at_once = max((_CPU_TOKENS if self._device.type == "cpu" else _GPU_TOKENS) // width, 1)
        parts = [(start, min(start + at_once, end), width) for start in range(first, end, at_once)]
        return numpy.concatenate(list(self._pool.map(self._nats_of, parts)))

    def _nats_of(self, part: tuple[int, int, int]) -> numpy.ndarray:
        start, end, width = part
        # A switch of this thread's own.
        with torch.inference_mode():
            rows = self._tokens[start:end].to(self._device)
            losses = torch.nn.functional.cross_entropy(
                self._model.logits(rows[:, :-1]), rows[:, 1:].reshape(-1), reduction="none"
            )
            return losses.view(-1, width).double().sum(1).cpu().numpy()

    def bits_per_byte(self, nats: numpy.ndarray) -> float:
        """Bits per byte of the first sequences, as many as ``nats`` has."""
        return float(nats.sum() / (math.log(2.0) * self.text_bytes[: len(nats)].sum()))

    def standard_error(self, nats: numpy.ndarray, other: numpy.ndarray) -> float:
        """Standard error of the difference in bits per byte of two sets of weights, paired by sequence."""
        differences = nats - other
        spread = float(differences.std(ddof=1)) if len(differences) > 1 else math.inf
        return spread * math.sqrt(len(nats)) / (math.log(2.0) * float(self.text_bytes[: len(nats)].sum()))
