"""Which training tokens a search scores on, and which ones calibrate GPTQ: never the same, and never validation's."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy
import torch

from golfray.core.frontier import calibration_batches
from golfray.core.settings import RunSettings
from golfray.core.shards import TokenStream, list_shards

# Sequences that lie further apart than this many of their lengths tell more of the corpus than neighbours do.
_SPREAD = 4


@dataclasses.dataclass(frozen=True)
class Reserve:
    """``tokens``: uint16 (sequences, seq_len + 1), in an order of which every beginning is spread over the whole.

    ``calibration``: int64 micro-batches (sequences, seq_len), those of a trial; none where nothing calibrates.
    ``trained_on``: whether the run may have learned the tokens. ``description``: the same for a person.
    """

    tokens: numpy.ndarray
    calibration: list[torch.Tensor]
    trained_on: bool
    description: str


def reserve_tokens(
    settings: RunSettings, steps: int | None, sequences: int, seed: int, *, calibrates: bool = True
) -> Reserve:
    """Tokens that the run of ``settings`` did not reach in ``steps`` steps, where there are enough of them.

    Enough is a quarter of ``sequences``; what is not enough, or unknown because ``steps`` is None, makes the slice come
    from the whole stream, and the description says so. Where something ``calibrates``, it takes the first
    ``export.gptq_batches`` micro-batches, as a trial does inside the clock, and the slice lies behind them. Raises
    ``FileNotFoundError`` or ``ValueError`` where the shards are missing, damaged or too short for both.
    """
    batch, folder = settings.batch, Path(settings.data.folder)
    stream = TokenStream(list_shards(folder, "train"))
    width, total = batch.seq_len + 1, stream.total_tokens
    # A slice is read with one token more than it has, which is its last target.
    slice_tokens = batch.tokens // batch.slices
    calibrated = settings.export.gptq_batches * (slice_tokens + 1) if calibrates else 0
    places = (total - calibrated) // width
    if places < 2:
        raise ValueError(
            f"{folder}: {total} training tokens are too few to reserve sequences of {batch.seq_len}"
            + (f" behind the {calibrated} that calibrate GPTQ; lower export.gptq_batches" if calibrates else "")
        )
    reached = total if steps is None else max(steps * batch.slices * (slice_tokens + 1), calibrated)
    left = max(total - reached, 0) // width
    if 4 * left >= sequences:
        first, trained_on = reached, False
        found = _spread(left, min(sequences, left), seed)
        what = f"{len(found)} sequences of {batch.seq_len} training tokens that the run did not reach"
    else:
        first, trained_on = calibrated, True
        found = _spread(places, min(sequences, places), seed)
        why = "how far the run read is not known" if steps is None else f"it left {left} sequences unread"
        what = f"{len(found)} sequences of {batch.seq_len} training tokens that may have been trained on: {why}"
    tokens = numpy.stack([stream.read(first + int(place) * width, width) for place in found]).astype(numpy.uint16)
    calibration = list(calibration_batches(settings, stream, torch.device("cpu"))) if calibrates else []
    return Reserve(tokens, calibration, trained_on, what)


def _spread(places: int, wanted: int, seed: int) -> numpy.ndarray:
    """``wanted`` of 0 .. places - 1, one from each of as many equal spans, in an order that is random."""
    random = numpy.random.default_rng(seed)
    edges = numpy.linspace(0, places, wanted + 1)
    within = random.uniform(0, 1, wanted) if places >= _SPREAD * wanted else numpy.zeros(wanted)
    found = (edges[:-1] + within * (edges[1:] - edges[:-1])).astype(numpy.int64)
    return random.permutation(found)
