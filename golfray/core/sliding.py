"""Validation by sliding windows: every token is predicted from almost a whole window of text (section 6.1).

Windows of ``length`` tokens start every ``stride``; each scores only the predictions that no earlier one has scored.
"""

import dataclasses
import math
import time
from collections.abc import Callable

import numpy
import torch

from golfray.core.byte_table import ByteTable
from golfray.core.gang import Gang
from golfray.core.score import Score
from golfray.core.shards import validation_range

NOT_SCORED = -100


@dataclasses.dataclass(frozen=True)
class Window:
    """One window over the predictions [start, end), of which it scores [first, end)."""

    start: int
    first: int
    end: int


def count_windows(predictions: int, length: int, stride: int) -> int:
    """How many windows score all predictions: starts 0, stride, 2 stride, ... while start + length - stride < N.

    The first always exists, so that a text shorter than a window is scored too.
    """
    return max(math.ceil((predictions - (length - stride)) / stride), 1)


def window_at(index: int, predictions: int, length: int, stride: int) -> Window:
    """Window number ``index``: the first scores all of itself, each later one what lies ``length - stride`` in."""
    start = index * stride
    return Window(start, start + length - stride if index else 0, min(start + length, predictions))


def score_sliding(
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    tokens: numpy.ndarray,
    table: ByteTable,
    length: int,
    stride: int,
    at_once: int,
    gang: Gang,
    limit_s: float | None = None,
) -> tuple[Score | None, float]:
    """Score all ``len(tokens) - 1`` predictions, each exactly once, and the share of them that was scored: 1.

    ``logits_of(inputs)`` gives float32 logits of shape (at_once * length, vocab) for int64 inputs of shape
    (at_once, length); short windows and batches are filled with token 0, which causal models do not look ahead to.
    Ranks take contiguous runs of windows; sums are float64. A rank that is not through after ``limit_s`` seconds stops:
    then there is no score, since that of a part of the text compares with nothing, and the share is below 1.

    Raises ``ValueError`` where ``stride`` is not in [1, length] or there is nothing to predict.
    """
    predictions = len(tokens) - 1
    if not 1 <= stride <= length or predictions < 1:
        raise ValueError(f"1 <= stride <= length and 1 prediction must hold, got {stride}, {length}, {predictions}")
    begin = time.perf_counter()
    first, last = validation_range(count_windows(predictions, length, stride), gang.rank, gang.world_size)
    sums = torch.zeros(4, dtype=torch.float64, device=gang.device)
    with torch.inference_mode():
        for index in range(first, last, at_once):
            if limit_s is not None and time.perf_counter() - begin > limit_s:
                sums[3] = last - index
                break
            windows = [window_at(i, predictions, length, stride) for i in range(index, min(index + at_once, last))]
            inputs = numpy.zeros((at_once, length), dtype=numpy.int64)
            targets = numpy.full((at_once, length), NOT_SCORED, dtype=numpy.int64)
            text_bytes = 0
            for row, window in enumerate(windows):
                size, scored = window.end - window.start, window.first - window.start
                inputs[row, :size] = tokens[window.start : window.end]
                targets[row, scored:size] = tokens[window.first + 1 : window.end + 1]
                text_bytes += table.count(tokens[window.first : window.end], tokens[window.first + 1 : window.end + 1])
            logits = logits_of(torch.from_numpy(inputs).to(gang.device))
            flat = torch.from_numpy(targets).to(gang.device).flatten()
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, -2), flat, ignore_index=NOT_SCORED, reduction="none"
            )
            sums[0] += losses.double().sum()
            sums[1] += (flat != NOT_SCORED).sum()
            sums[2] += text_bytes
            # Without waiting, a GPU's queue would hide how long this takes.
            if gang.device.type == "cuda":
                torch.cuda.synchronize(gang.device)
    nats, count, text_bytes, windows_left = gang.sum(sums).tolist()
    if windows_left:
        return None, count / predictions
    assert count == predictions, f"sliding windows scored {count:.0f} of {predictions} predictions"
    return Score(nats / count, nats / (math.log(2.0) * text_bytes), int(count), int(text_bytes)), 1.0
