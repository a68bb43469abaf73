"""One pass over all tokens of a split: what a check counts, and each document's digest."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy

from golfray.core.byte_table import ByteTable
from golfray.data.token_files import read_chunks

DIGEST_BYTES = 16
ALL_IDS = 2**16


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class SplitScan:
    """``counts`` is int64 of shape (65536,): how often each id occurs. ``documents`` is the number of BOS tokens.

    ``scored_bytes`` are those of every token but the first given the one before it.
    """

    tokens: int
    documents: int
    first: int
    counts: numpy.ndarray
    scored_bytes: int
    over: dict[pathlib.Path, OverVocabulary]


def digest_tokens(tokens: Sequence[int] | numpy.ndarray) -> bytes:
    """The digest of a document from its tokens behind BOS."""
    return hashlib.blake2b(numpy.asarray(tokens, dtype="<u2").tobytes(), digest_size=DIGEST_BYTES).digest()


def scan_split(
    paths: Sequence[pathlib.Path],
    table: ByteTable,
    vocab_size: int,
    bos_id: int,
    on_document: Callable[[DocumentSpan], None],
) -> SplitScan:
    """Read whole shards, in order, as one sequence; ``on_document`` is told each document that has tokens.

    ``table`` covers ``ALL_IDS`` ids. What stands ahead of the first BOS is no document. Holds 2**20 tokens in memory.
    Raises what ``map_shard`` raises.
    """
    counts = numpy.zeros(ALL_IDS, dtype=numpy.int64)
    over: dict[pathlib.Path, OverVocabulary] = {}
    spans = _Spans(bos_id, on_document)
    before = numpy.empty(0, dtype=numpy.uint16)
    first, scored_bytes = -1, 0
    for path in paths:
        seen = 0
        for chunk in read_chunks([path]):
            if first < 0:
                first = int(chunk[0])
            counts += numpy.bincount(chunk, minlength=ALL_IDS)
            sequence = numpy.concatenate([before, chunk])
            scored_bytes += table.count(sequence[:-1], sequence[1:])
            before = chunk[-1:]
            if len(positions := numpy.flatnonzero(chunk >= vocab_size)):
                place = int(positions[0])
                known = over.get(path, OverVocabulary(0, int(chunk[place]), seen + place))
                over[path] = dataclasses.replace(known, count=known.count + len(positions))
            spans.feed(chunk)
            seen += len(chunk)
    spans.end()
    return SplitScan(
        tokens=spans.position,
        documents=0 if bos_id < 0 else int(counts[bos_id]),
        first=first,
        counts=counts,
        scored_bytes=scored_bytes,
        over=over,
    )


class _Spans:
    """Documents out of chunks of tokens; of one that runs over chunks only the unfinished digest is kept."""

    def __init__(self, bos_id: int, on_document: Callable[[DocumentSpan], None]) -> None:
        self.position = 0
        self._bos_id = bos_id
        self._on_document = on_document
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._start: int | None = None
        self._length = 0

    def feed(self, chunk: numpy.ndarray) -> None:
        """The next tokens, uint16."""
        content = memoryview(chunk.astype("<u2").tobytes())
        edges = [*numpy.flatnonzero(chunk == self._bos_id).tolist(), len(chunk)]
        self._add(content, 0, edges[0])
        for start, end in itertools.pairwise(edges):
            self.end()
            self._start = self.position + start
            self._add(content, start + 1, end)
        self.position += len(chunk)

    def end(self) -> None:
        """The document at hand is complete."""
        if self._start is not None and self._length:
            self._on_document(DocumentSpan(self._start, self._length, self._digest.digest()))
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._start, self._length = None, 0

    def _add(self, content: memoryview, start: int, end: int) -> None:
        self._digest.update(content[2 * start : 2 * end])
        self._length += end - start


class Overlap:
    """Which of some documents are among others: told the others one by one, it keeps what it found.

    The documents looked for are given as digests, each with the number of its document; one may have several.
    """

    def __init__(self, digests: Iterable[tuple[bytes, int]]) -> None:
        self._numbers = dict(digests)
        self._found: set[int] = set()
        self.first: DocumentSpan | None = None

    @property
    def documents(self) -> int:
        """How many different documents are looked for."""
        return len(set(self._numbers.values()))

    @property
    def found(self) -> int:
        """How many of them were met."""
        return len(self._found)

    def look(self, span: DocumentSpan) -> None:
        """Another document of the other side."""
        if (number := self._numbers.get(span.digest)) is not None:
            self._found.add(number)
            self.first = self.first or span


class Sampler:
    """About ``count`` documents, evenly spread over ``tokens`` tokens."""

    def __init__(self, count: int, tokens: int) -> None:
        self.spans: list[DocumentSpan] = []
        self._step = max(tokens / count, 1)

    def look(self, span: DocumentSpan) -> None:
        """The next document; it is taken where the last one taken is far enough behind."""
        if span.start >= len(self.spans) * self._step:
            self.spans.append(span)
