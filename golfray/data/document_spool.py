"""Documents put aside on disk while a corpus is built, so that memory does not grow with the text."""

from __future__ import annotations

import array
import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import overload

import numpy

from golfray.data.digest import DIGEST_BYTES
from golfray.data.text_files import Document


class DocumentSpool:
    """Texts in a file that no other process sees and that is gone with this one; in memory, 36 bytes a document.

    Texts are numbered from 0 as they are added. ``digests`` tell which are the same, ``files`` and ``lines`` where each
    is from.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
        self._ends = array.array("Q", [0])
        self._digests = bytearray()
        self.files = array.array("L")
        self.lines = array.array("Q")

    def add(self, document: Document, digest: bytes) -> None:
        """Append a document; ``digest`` is ``DIGEST_BYTES`` long and the same for texts that count as the same."""
        content = document.text.encode("utf-8")
        self._file.write(content)
        self._ends.append(self._ends[-1] + len(content))
        assert len(digest) == DIGEST_BYTES
        self._digests += digest
        self.files.append(document.file)
        self.lines.append(document.line)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def text(self, number: int) -> str:
        """The text of a document."""
        self._file.flush()
        start, end = self._ends[number], self._ends[number + 1]
        return os.pread(self._file.fileno(), end - start, start).decode("utf-8")

    @property
    def total_bytes(self) -> int:
        """UTF-8 bytes of all texts together."""
        return self._ends[-1]

    def same_as_earlier(self) -> dict[int, int]:
        """The documents that an earlier one is the same as: number of the first of them, by number."""
        words = numpy.frombuffer(bytes(self._digests), dtype="<u8").reshape(-1, 2)
        order = numpy.lexsort((words[:, 1], words[:, 0]))  # stable: the same ones stay in the order of their numbers
        ordered = words[order]
        is_first = numpy.ones(len(order), dtype=bool)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        firsts = order[numpy.maximum.accumulate(numpy.where(is_first, numpy.arange(len(order)), 0))]
        return {int(number): int(first) for number, first in zip(order[~is_first], firsts[~is_first], strict=True)}

    def close(self) -> None:
        """Free the disk."""
        self._file.close()


@contextlib.contextmanager
def open_spool(folder: pathlib.Path) -> Iterator[DocumentSpool]:
    """An empty spool on the disk of ``folder``."""
    spool = DocumentSpool(folder)
    try:
        yield spool
    finally:
        spool.close()


class SpooledDocuments(Sequence[str]):
    """Some documents of a spool in an order, read when asked for."""

    def __init__(self, spool: DocumentSpool, numbers: Sequence[int]) -> None:
        self._spool = spool
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> SpooledDocuments: ...

    def __getitem__(self, index: int | slice) -> str | SpooledDocuments:
        if isinstance(index, slice):
            return SpooledDocuments(self._spool, self._numbers[index])
        return self._spool.text(self._numbers[index])
