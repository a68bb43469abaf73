"""Which documents are among others."""

from __future__ import annotations

from collections.abc import Iterable

from golfray.data.split_tally import DocumentSpan


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

    def is_wanted(self, span: DocumentSpan) -> bool:
        """Whether a document of the other side is one that is looked for."""
        return span.digest in self._numbers

    def look(self, span: DocumentSpan) -> None:
        """Another document of the other side."""
        if (number := self._numbers.get(span.digest)) is not None:
            self._found.add(number)
            self.first = self.first or span
