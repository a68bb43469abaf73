"""One pass over a shard on disk: its hash, its tokens, and the bytes of text that they stand for."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

import numpy

from golfray.core.byte_table import ByteTable
from golfray.data.errors import DataError
from golfray.data.shard_header import HEADER_BYTES, diagnose_shard

CHUNK_TOKENS = 1 << 20


@dataclasses.dataclass(frozen=True)
class ShardFacts:
    """``counts`` is int64 of shape (vocab_size,): how often each token occurs; ``last`` is the last token.

    ``scored_bytes`` are those of every token given the one before it, the first token of the split left out.
    """

    sha256: str
    bytes: int
    tokens: int
    counts: numpy.ndarray
    first: int
    last: int
    scored_bytes: int


def inspect_shard(path: pathlib.Path, vocab_size: int, table: ByteTable | None, before: int | None) -> ShardFacts:
    """Read a whole shard whose split goes on from the token ``before`` (None: the split begins here).

    Without a byte table the scored bytes are 0. Raises ``DataError`` naming the first token that is not below
    ``vocab_size``, or what is wrong with header and size.
    """
    if finding := diagnose_shard(path):
        raise DataError(finding.line())
    digest = hashlib.sha256()
    counts = numpy.zeros(vocab_size, dtype=numpy.int64)
    scored_bytes, seen = 0, 0
    first, last = -1, before
    with open(path, "rb") as file:
        digest.update(file.read(HEADER_BYTES))
        while content := file.read(2 * CHUNK_TOKENS):
            digest.update(content)
            chunk = numpy.frombuffer(content, dtype="<u2")
            if int(chunk.max()) >= vocab_size:
                place = int(numpy.argmax(chunk >= vocab_size))
                raise DataError(
                    f"{path}: token {int(chunk[place])} at position {seen + place:,}, but the manifest says that "
                    f"vocab_size is {vocab_size}: ids must be below it"
                )
            if seen == 0:
                first = int(chunk[0])
            counts += numpy.bincount(chunk, minlength=vocab_size)
            if table is not None:
                sequence = chunk if last is None else numpy.concatenate([numpy.array([last], dtype="<u2"), chunk])
                scored_bytes += table.count(sequence[:-1], sequence[1:])
            last = int(chunk[-1])
            seen += len(chunk)
    assert last is not None, "a shard has at least one token"
    return ShardFacts(digest.hexdigest(), HEADER_BYTES + 2 * seen, seen, counts, first, last, scored_bytes)
