"""The token beyond the vocabulary behind an error of a rank, if it is that.

Shards are sampled before a study starts, not read, so one may hold an id that the model has no row for. What a rank
raises then (an index error, an assertion on the device) names neither file nor place; the step that it was in does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from golfray.core.loop import Trainer
    from golfray.core.settings import RunSettings

# For :attr:`golfray.sweep.outcome.Outcome.error`.
BAD_TOKEN = "token beyond the vocabulary"


def describe_bad_token(error: BaseException) -> str | None:
    """File, position and value of the first id beyond ``model.vocab_size`` in what the rank was reading.

    In training that is the step's own slices, those of its peers included; afterwards the whole validation text. None
    where all ids are in range, or the error comes from elsewhere.
    """
    # Torch is only loaded where trials run.
    from golfray.core.loop import Trainer
    from golfray.core.trial import run_trial

    places = {frame.f_code: frame.f_locals for frame in _frames(error)}
    if (step := places.get(Trainer.step.__code__)) is not None:
        return _in_step(step["self"], step["step"])
    trial = places.get(run_trial.__code__)
    if trial is not None and trial["phases"].name in ("validate", "score"):
        return _in_validation(trial["settings"])
    return None


def _in_step(trainer: Trainer, step: int) -> str | None:
    from golfray.core.shards import list_shards

    batch, stream, vocabulary = trainer.settings.batch, trainer.stream, trainer.settings.model.vocab_size
    count = batch.slices * (batch.tokens // batch.slices + 1)
    found = _first(stream.read(step * count, count), vocabulary)
    if found is None:
        return None
    position = (step * count + found[0]) % stream.total_tokens
    shard = int(numpy.searchsorted(stream.ends, position, side="right"))
    path = list_shards(Path(trainer.settings.data.folder), "train")[shard]
    return _words(path, position - (int(stream.ends[shard - 1]) if shard else 0), found[1], vocabulary)


def _in_validation(settings: RunSettings) -> str | None:
    from golfray.core.shards import list_shards, map_shard

    for path in list_shards(Path(settings.data.folder), "val"):
        if (found := _first(map_shard(path), settings.model.vocab_size)) is not None:
            return _words(path, *found, settings.model.vocab_size)
    return None


def _first(tokens: numpy.ndarray, vocabulary: int) -> tuple[int, int] | None:
    """Position and value of the first id out of range."""
    beyond = numpy.flatnonzero(tokens >= vocabulary)
    return (int(beyond[0]), int(tokens[beyond[0]])) if len(beyond) else None


def _words(path: Path, position: int, token: int, vocabulary: int) -> str:
    return (
        f"{path}: token {token} at position {position} is beyond the vocabulary of {vocabulary}; "
        f"`golfray data check {path.parent}` reads every shard whole"
    )


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
