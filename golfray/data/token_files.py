"""Token shards: writing them, and counting the bytes of text that they stand for."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType

import numpy

from golfray.core.byte_table import ByteTable
from golfray.core.shards import SHARD_HEADER_INTS, SHARD_MAGIC, SHARD_VERSION, map_shard
from golfray.data.errors import DataError

CHUNK_TOKENS = 1 << 20
HEADER_BYTES = 4 * SHARD_HEADER_INTS


class _Shard:
    """One shard being written; its header is completed when it is closed."""

    def __init__(self, path: pathlib.Path) -> None:
        self.count = 0
        self._file = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.seek(4 * SHARD_HEADER_INTS)

    def __enter__(self) -> _Shard:
        return self

    def write(self, tokens: numpy.ndarray) -> None:
        """Append little-endian uint16 tokens."""
        self._file.write(tokens.tobytes())
        self.count += len(tokens)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        header = numpy.zeros(SHARD_HEADER_INTS, dtype="<i4")
        header[:3] = SHARD_MAGIC, SHARD_VERSION, self.count
        with self._file:
            self._file.seek(0)
            self._file.write(header.tobytes())


def write_shards(
    folder: pathlib.Path,
    split: str,
    documents: Iterable[Sequence[int]],
    shard_tokens: int,
    on_shard: Callable[[pathlib.Path], None] = lambda path: None,
) -> list[pathlib.Path]:
    """Write the token ids of ``documents`` end to end as ``fineweb_<split>_<number>.bin`` and return the paths.

    Every shard but the last holds exactly ``shard_tokens`` tokens; a document may run over a boundary. Ids must be
    within uint16 (``OverflowError`` otherwise). No more than a document is held in memory. ``on_shard`` is told each
    shard once it is written.
    """
    paths: list[pathlib.Path] = []
    rest = _arrays(documents)
    tokens = next(rest, None)
    while tokens is not None:
        paths.append(folder / f"fineweb_{split}_{len(paths):06d}.bin")
        with _Shard(paths[-1]) as shard:
            while tokens is not None and shard.count < shard_tokens:
                room = shard_tokens - shard.count
                shard.write(tokens[:room])
                tokens = tokens[room:] if len(tokens) > room else next(rest, None)
        on_shard(paths[-1])
    return paths


def _arrays(documents: Iterable[Sequence[int]]) -> Iterator[numpy.ndarray]:
    for document in documents:
        if len(document):
            yield numpy.array(document, dtype="<u2")


def read_chunks(paths: Sequence[pathlib.Path]) -> Iterator[numpy.ndarray]:
    """The tokens of the shards in order, as uint16 arrays of at most 2**20 each; raises what ``map_shard`` raises."""
    for path in paths:
        shard = map_shard(path)
        for start in range(0, len(shard), CHUNK_TOKENS):
            yield numpy.asarray(shard[start : start + CHUNK_TOKENS])


class TokenFiles:
    """Whole shards as one sequence, none of which is kept open: there may be more of them than files may be open."""

    def __init__(self, paths: Sequence[pathlib.Path]) -> None:
        self._paths = list(paths)
        self._ends = numpy.cumsum([(path.stat().st_size - HEADER_BYTES) // 2 for path in paths], dtype=numpy.int64)
        self.total_tokens = int(self._ends[-1])

    def read(self, start: int, count: int) -> numpy.ndarray:
        """Tokens [start, start + count), as int64 of shape (count,); they must be within ``total_tokens``."""
        out = numpy.empty(count, dtype=numpy.int64)
        filled = 0
        while filled < count:
            index = int(numpy.searchsorted(self._ends, start + filled, side="right"))
            offset = start + filled - (int(self._ends[index - 1]) if index else 0)
            piece = numpy.fromfile(self._paths[index], "<u2", count - filled, offset=HEADER_BYTES + 2 * offset)
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
        return out


def read_token_documents(paths: Sequence[pathlib.Path], bos_id: int) -> Iterator[numpy.ndarray]:
    """The documents of the shards in order, each a uint16 array that begins with BOS; one runs over shards.

    Tokens ahead of the first BOS come first, as a document without one. Holds one document in memory.
    """
    parts: list[numpy.ndarray] = []
    for chunk in read_chunks(paths):
        first, *others = numpy.split(chunk, numpy.flatnonzero(chunk == bos_id))
        parts.append(first)
        for document in others:
            if sum(map(len, parts)):
                yield numpy.concatenate(parts)
            parts = [document]
    if sum(map(len, parts)):
        yield numpy.concatenate(parts)


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
