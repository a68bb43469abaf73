"""The one pass over the tokens of a split: what they count, what the tokenizer lacks, and where each document is."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy

from golfray.core.byte_table import ByteTable
from golfray.data.digest import RunningDigest
from golfray.data.errors import DataError
from golfray.data.shard_layout import MAX_VOCAB_SIZE
from golfray.data.token_files import Hash, cut_documents, read_chunks


@dataclasses.dataclass(frozen=True, slots=True)
class DocumentSpan:
    """A document among the tokens of its split: where its BOS stands, how many tokens follow, and their digest."""

    start: int
    length: int
    digest: bytes


@dataclasses.dataclass(frozen=True)
class OverVocabulary:
    """Ids of a shard that the tokenizer lacks: how many, and the first of them with its position in the shard."""

    count: int
    first: int
    position: int


def _ignore(_span: DocumentSpan) -> None:
    """Nobody asked for documents."""


class SplitTally:
    """What the shards read so far hold, as one sequence of tokens.

    ``counts`` is int64 of shape (65536,): how often each id occurs. ``scored_bytes`` are those of every token but the
    very first given the one before it, 0 without a ``table``, which covers 65,536 ids. ``over`` are the ids of each
    shard that are not below ``vocab_size``. Documents are told apart where ``bos_id`` is one; what stands ahead of the
    first BOS is none.
    """

    def __init__(self, table: ByteTable | None, vocab_size: int, bos_id: int = -1) -> None:
        self.counts = numpy.zeros(MAX_VOCAB_SIZE, dtype=numpy.int64)
        self.tokens = 0
        self.first = -1
        self.scored_bytes = 0
        self.over: dict[pathlib.Path, OverVocabulary] = {}
        self._table = table
        self._vocab_size = vocab_size
        self._bos_id = bos_id
        self._before = numpy.empty(0, dtype=numpy.uint16)
        self._start: int | None = None
        self._length = 0
        self._digest = RunningDigest()

    @property
    def documents(self) -> int:
        """How many BOS tokens there are."""
        return 0 if self._bos_id < 0 else int(self.counts[self._bos_id])

    def predicted_counts(self) -> numpy.ndarray:
        """``counts`` without the very first token, which nothing predicts; there must be one."""
        predicted = self.counts.copy()
        predicted[self.first] -= 1
        return predicted

    def copy(self) -> SplitTally:
        """The same so far, to read on without changing this one."""
        other = copy.copy(self)
        other.counts, other.over, other._digest = self.counts.copy(), dict(self.over), self._digest.copy()
        return other

    def read(
        self, path: pathlib.Path, on_document: Callable[[DocumentSpan], None] = _ignore, sha256: Hash | None = None
    ) -> None:
        """Read the next shard whole, 2**20 tokens at a time.

        ``on_document`` is told each document that has tokens once the next one begins; ``sha256`` gets the bytes of the
        file. Raises what ``read_chunks`` raises.
        """
        seen = 0
        for chunk in read_chunks([path], sha256):
            if self.first < 0:
                self.first = int(chunk[0])
            self.counts += numpy.bincount(chunk, minlength=MAX_VOCAB_SIZE)
            if self._table is not None:
                sequence = numpy.concatenate([self._before, chunk])
                self.scored_bytes += self._table.count(sequence[:-1], sequence[1:])
            self._before = chunk[-1:].copy()
            if len(positions := numpy.flatnonzero(chunk >= self._vocab_size)):
                place = int(positions[0])
                known = self.over.get(path, OverVocabulary(0, int(chunk[place]), seen + place))
                self.over[path] = dataclasses.replace(known, count=known.count + len(positions))
            if self._bos_id >= 0:
                self._cut(chunk, on_document)
            seen += len(chunk)
            self.tokens += len(chunk)

    def end(self, on_document: Callable[[DocumentSpan], None]) -> None:
        """No shard follows: the document at hand is complete."""
        if self._start is not None and self._length:
            on_document(DocumentSpan(self._start, self._length, self._digest.value()))
        self._start, self._length, self._digest = None, 0, RunningDigest()

    def _cut(self, chunk: numpy.ndarray, on_document: Callable[[DocumentSpan], None]) -> None:
        """Of a document that runs over chunks only the unfinished digest is kept."""
        rest, others = cut_documents(chunk, self._bos_id)
        self._add(rest)
        position = self.tokens + len(rest)
        for document in others:
            self.end(on_document)
            self._start = position
            self._add(document[1:])
            position += len(document)

    def _add(self, tokens: numpy.ndarray) -> None:
        if self._start is not None:
            self._digest.add(tokens.tobytes())
            self._length += len(tokens)


def tally_split(
    paths: Sequence[pathlib.Path],
    table: ByteTable | None,
    pieces: int,
    remedy: str = "data.tokenizer must be the one these shards were made with",
) -> SplitTally:
    """All shards of a split under a tokenizer of so many ``pieces``.

    Raises ``DataError`` naming the first token that the tokenizer lacks, with ``remedy``, and what ``read_chunks``
    raises.
    """
    tally = SplitTally(table, pieces)
    for path in paths:
        tally.read(path)
        if (over := tally.over.get(path)) is not None:
            raise DataError(
                f"token {over.first} at position {over.position:,}, but the tokenizer has {pieces} pieces",
                where=path,
                remedy=remedy,
            )
    return tally
