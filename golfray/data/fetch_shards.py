"""The shards of a published dataset as they come: each verified, and all of them read on as one sequence."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence

from golfray.core.byte_table import ByteTable
from golfray.data.errors import DataError
from golfray.data.fetch_file import FetchFile, FileFetcher
from golfray.data.manifest import FileEntry
from golfray.data.overlap import Overlap
from golfray.data.published_manifest import PublishedDataset
from golfray.data.split_tally import DocumentSpan, SplitTally


@dataclasses.dataclass(frozen=True)
class SplitFacts:
    """The shards of a split, and what all their tokens are."""

    shards: list[FileEntry]
    tally: SplitTally


class ShardFetcher:
    """Brings the shards of a dataset into place, validation first: training documents are looked for in it.

    Without a ``table`` (of 65,536 ids) no bytes are counted, and with a ``bos_id`` below 0 no documents.
    """

    def __init__(self, fetcher: FileFetcher, dataset: PublishedDataset, table: ByteTable | None, bos_id: int) -> None:
        self.fetcher, self.dataset, self.table, self.bos_id = fetcher, dataset, table, bos_id
        self.overlap = Overlap([])

    def obtain_val(self, files: Sequence[FetchFile]) -> SplitFacts:
        """Raises what ``FileFetcher.obtain`` raises, here and below."""
        facts, spans = self._obtain(files, None)
        self.overlap = Overlap((span.digest, number) for number, span in enumerate(spans))
        return facts

    def obtain_train(self, files: Sequence[FetchFile]) -> SplitFacts:
        """``overlap`` has what was found once this returns."""
        facts, spans = self._obtain(files, self.overlap)
        for span in spans:
            self.overlap.look(span)
        return facts

    def _obtain(self, files: Sequence[FetchFile], wanted: Overlap | None) -> tuple[SplitFacts, list[DocumentSpan]]:
        """The split, and its documents; of them only those that are ``wanted`` where that is given."""
        tally = SplitTally(self.table, self.dataset.vocab_size, self.bos_id)
        shards: list[FileEntry] = []
        documents: list[DocumentSpan] = []

        def keep(span: DocumentSpan, into: list[DocumentSpan]) -> None:
            if wanted is None or wanted.is_wanted(span):
                into.append(span)

        def verify(path: pathlib.Path) -> tuple[str, tuple[SplitTally, list[DocumentSpan], FileEntry]]:
            # Into copies: what is read of a file that turns out to be another must be forgotten.
            after, digest = tally.copy(), hashlib.sha256()
            met: list[DocumentSpan] = []
            after.read(path, lambda span: keep(span, met), digest)
            if (over := after.over.get(path)) is not None:
                raise DataError(
                    f"token {over.first} at position {over.position:,}, but the manifest says that vocab_size is "
                    f"{self.dataset.vocab_size}: ids must be below it",
                    where=path,
                )
            entry = FileEntry(path.name, path.stat().st_size, digest.hexdigest())
            return entry.sha256, (after, met, entry)

        for file in files:
            tally, met, entry = self.fetcher.obtain(file, verify)
            documents += met
            shards.append(dataclasses.replace(entry, file=file.target.name))
        tally.end(lambda span: keep(span, documents))
        return SplitFacts(shards, tally), documents
