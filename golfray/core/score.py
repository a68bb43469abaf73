"""Validation: nats per token and bits per byte of a model, shared out over the ranks (section 3.5 and 3.6)."""

import dataclasses
import math
from collections.abc import Callable

import numpy
import torch

from golfray.core.byte_table import ByteTable
from golfray.core.gang import Gang
from golfray.core.settings import BatchSettings
from golfray.core.shards import validation_range


@dataclasses.dataclass(frozen=True)
class Score:
    """Mean loss in nats per predicted token, bits per byte, and what they were counted over."""

    loss: float
    bits_per_byte: float
    tokens: int
    bytes: int


def score_model(
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    tokens: numpy.ndarray,
    table: ByteTable,
    batch: BatchSettings,
    gang: Gang,
) -> Score:
    """Score every whole validation sequence once.

    ``loss_of(inputs, targets)`` is the mean cross-entropy of int64 batches of shape (sequences, seq_len); ``tokens``
    is uint16 of shape (usable + 1,). Sums are float64 and run over the ranks; BPB = nats / (ln 2 * bytes).
    """
    total_sequences = (len(tokens) - 1) // batch.seq_len
    first, last = validation_range(total_sequences, gang.rank, gang.world_size)
    at_once = max(batch.val_tokens // batch.slices // batch.seq_len, 1)
    nats, count, text_bytes = 0.0, 0, 0
    with torch.inference_mode():
        for start in range(first, last, at_once):
            end = min(start + at_once, last)
            flat = tokens[start * batch.seq_len : end * batch.seq_len + 1].astype(numpy.int64)
            inputs = torch.from_numpy(flat[:-1]).to(gang.device).view(-1, batch.seq_len)
            targets = torch.from_numpy(flat[1:]).to(gang.device).view(-1, batch.seq_len)
            nats += float(loss_of(inputs, targets)) * inputs.numel()
            count += inputs.numel()
            text_bytes += table.count(flat[:-1], flat[1:])
    sums = torch.tensor([nats, count, text_bytes], dtype=torch.float64, device=gang.device)
    nats, count, text_bytes = gang.sum(sums).tolist()
    return Score(nats / count, nats / (math.log(2.0) * text_bytes), int(count), int(text_bytes))
