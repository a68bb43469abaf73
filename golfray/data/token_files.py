"""Token shards on disk: writing them, and reading their tokens in chunks, in places, and as documents."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Protocol

import numpy

from golfray.data.errors import DataError
from golfray.data.shard_header import HEADER_BYTES, diagnose_shard, header_for, tokens_in
from golfray.data.shard_layout import TOKEN_BYTES, shard_name

CHUNK_TOKENS = 1 << 20


class Hash(Protocol):
    """What the bytes of a file are told to while they are read."""

    def update(self, content: bytes, /) -> None:
        """The next bytes."""
        ...


class _Shard:
    """One shard being written; its header is completed when it is closed."""

    def __init__(self, path: pathlib.Path) -> None:
        self.count = 0
        self._file = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.seek(HEADER_BYTES)

    def __enter__(self) -> _Shard:
        return self

    def write(self, tokens: numpy.ndarray) -> None:
        """Append little-endian uint16 tokens."""
        self._file.write(tokens.tobytes())
        self.count += len(tokens)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._file.seek(0)
            self._file.write(header_for(self.count))


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
        paths.append(folder / shard_name(split, len(paths)))
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


def read_chunks(paths: Sequence[pathlib.Path], sha256: Hash | None = None) -> Iterator[numpy.ndarray]:
    """The tokens of the shards in order, as uint16 arrays of at most 2**20 each.

    ``sha256`` is told every byte of the files. Raises ``DataError`` with the likely cause where a file is no whole
    shard, and ``OSError`` where it cannot be read.
    """
    for path in paths:
        if finding := diagnose_shard(path):
            raise DataError.of(finding)
        with open(path, "rb") as file:
            header = file.read(HEADER_BYTES)
            if sha256 is not None:
                sha256.update(header)
            while content := file.read(TOKEN_BYTES * CHUNK_TOKENS):
                if sha256 is not None:
                    sha256.update(content)
                yield numpy.frombuffer(content, dtype="<u2")


class TokenFiles:
    """Whole shards as one sequence, none of which is kept open: there may be more of them than files may be open."""

    def __init__(self, paths: Sequence[pathlib.Path]) -> None:
        self._paths = list(paths)
        self._ends = numpy.cumsum([tokens_in(path.stat().st_size) for path in paths], dtype=numpy.int64)
        self.total_tokens = int(self._ends[-1])

    def read(self, start: int, count: int) -> numpy.ndarray:
        """Tokens [start, start + count), as int64 of shape (count,); they must be within ``total_tokens``."""
        out = numpy.empty(count, dtype=numpy.int64)
        filled = 0
        while filled < count:
            index = int(numpy.searchsorted(self._ends, start + filled, side="right"))
            offset = start + filled - (int(self._ends[index - 1]) if index else 0)
            place = HEADER_BYTES + TOKEN_BYTES * offset
            piece = numpy.fromfile(self._paths[index], "<u2", count - filled, offset=place)
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
        return out


def cut_documents(tokens: numpy.ndarray, bos_id: int) -> tuple[numpy.ndarray, list[numpy.ndarray]]:
    """The tokens ahead of the first BOS, and the documents that begin here, each with its BOS; the last may go on."""
    rest, *documents = numpy.split(tokens, numpy.flatnonzero(tokens == bos_id))
    return rest, documents


def read_token_documents(paths: Sequence[pathlib.Path], bos_id: int) -> Iterator[numpy.ndarray]:
    """The documents of the shards in order, each a uint16 array that begins with BOS; one runs over shards.

    Tokens ahead of the first BOS come first, as a document without one. Holds one document in memory.
    """
    parts: list[numpy.ndarray] = []
    for chunk in read_chunks(paths):
        rest, others = cut_documents(chunk, bos_id)
        parts.append(rest)
        for document in others:
            if sum(map(len, parts)):
                yield numpy.concatenate(parts)
            parts = [document]
    if sum(map(len, parts)):
        yield numpy.concatenate(parts)
