"""Token shards: writing them, and counting the bytes of text that they stand for."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

import numpy

from golfray.core.byte_table import ByteTable
from golfray.core.shards import SHARD_HEADER_INTS, SHARD_MAGIC, SHARD_VERSION, map_shard
from golfray.data.errors import DataError

CHUNK_TOKENS = 1 << 20


def write_shards(
    folder: pathlib.Path, split: str, documents: Iterable[Sequence[int]], shard_tokens: int
) -> list[pathlib.Path]:
    """Write the token ids of ``documents`` end to end as ``fineweb_<split>_<number>.bin`` and return the paths.

    Every shard but the last holds exactly ``shard_tokens`` tokens; a document may run over a boundary. Ids must be
    within uint16 (``OverflowError`` otherwise).
    """
    paths: list[pathlib.Path] = []
    waiting: list[numpy.ndarray] = []
    count = 0
    for document in documents:
        waiting.append(numpy.array(document, dtype="<u2"))
        count += len(document)
        while count >= shard_tokens:
            joined = numpy.concatenate(waiting)
            paths.append(_write_shard(folder, split, len(paths), joined[:shard_tokens]))
            waiting, count = [joined[shard_tokens:]], count - shard_tokens
    if count:
        paths.append(_write_shard(folder, split, len(paths), numpy.concatenate(waiting)))
    return paths


def _write_shard(folder: pathlib.Path, split: str, number: int, tokens: numpy.ndarray) -> pathlib.Path:
    path = folder / f"fineweb_{split}_{number:06d}.bin"
    header = numpy.zeros(SHARD_HEADER_INTS, dtype="<i4")
    header[:3] = SHARD_MAGIC, SHARD_VERSION, len(tokens)
    with open(path, "wb") as file:
        file.write(header.tobytes())
        file.write(tokens.tobytes())
    return path


def read_chunks(paths: Sequence[pathlib.Path]) -> Iterator[numpy.ndarray]:
    """The tokens of the shards in order, as uint16 arrays of at most 2**20 each; raises what ``map_shard`` raises."""
    for path in paths:
        shard = map_shard(path)
        for start in range(0, len(shard), CHUNK_TOKENS):
            yield numpy.asarray(shard[start : start + CHUNK_TOKENS])


def count_scored_bytes(paths: Sequence[pathlib.Path], table: ByteTable) -> int:
    """Bytes that bits per byte divides by when every token but the very first is predicted from those before it.

    The shards count as one sequence. Raises ``DataError`` where a token is beyond the table's vocabulary.
    """
    vocab_size = len(table.base_bytes)
    total = 0
    before = numpy.empty(0, dtype=numpy.uint16)
    for chunk in read_chunks(paths):
        if int(chunk.max()) >= vocab_size:
            raise DataError(
                f"{paths[0].parent}: token {int(chunk.max())} found, but the tokenizer has {vocab_size} pieces; "
                "data.tokenizer must be the one these shards were made with"
            )
        sequence = numpy.concatenate([before, chunk])
        total += table.count(sequence[:-1], sequence[1:])
        before = chunk[-1:]
    return total
