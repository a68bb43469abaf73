"""golfray's own manifest of a fetched dataset, so that it opens like any other corpus and can be checked later."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Sequence

import numpy

from golfray.data.errors import DataError
from golfray.data.fetch_file import FetchFile
from golfray.data.fetch_plan import FETCHED_FROM, FetchPlan
from golfray.data.manifest import FILE_NAME, FileEntry, Manifest, Split, describe_file, read_manifest, write_manifest
from golfray.data.published_manifest import DEFAULT_REPOSITORY, VAL_BYTES_KEY
from golfray.data.reference_points import uniform_bits_per_byte, unigram_bits_per_byte
from golfray.data.shard_facts import ShardFacts


@dataclasses.dataclass(frozen=True)
class SplitFacts:
    """The shards of a split as one sequence; ``counts`` is int64 of shape (vocab_size,), ``first`` the first token."""

    shards: list[FileEntry]
    tokens: int
    counts: numpy.ndarray
    first: int
    scored_bytes: int

    @classmethod
    def join(cls, files: Sequence[FetchFile], found: Sequence[ShardFacts]) -> SplitFacts:
        """From what was found in each shard, in order."""
        return cls(
            shards=[
                FileEntry(file.target.name, facts.bytes, facts.sha256) for file, facts in zip(files, found, strict=True)
            ],
            tokens=sum(facts.tokens for facts in found),
            counts=numpy.sum([facts.counts for facts in found], axis=0),
            first=found[0].first,
            scored_bytes=sum(facts.scored_bytes for facts in found),
        )


def write_fetched_manifest(
    plan: FetchPlan, tokenizer: pathlib.Path, bos_id: int, val: SplitFacts, train: SplitFacts
) -> Manifest:
    """Write ``manifest.json`` and a copy of the tokenizer beside the shards, where they are not there already.

    The reference points are those that the token counts give: ``uniform`` and ``unigram``. Raises ``DataError`` where
    no validation token stands for any byte, and ``OSError``.
    """
    if val.scored_bytes == 0:
        raise DataError(f"{plan.folder}: no validation token stands for any text with the tokenizer {tokenizer.name}")
    copy = plan.folder / tokenizer.name
    if not copy.is_file() or describe_file(copy) != describe_file(tokenizer):
        copy.unlink(missing_ok=True)
        shutil.copyfile(tokenizer, copy)
    predicted = val.counts.copy()
    predicted[val.first] -= 1
    manifest = Manifest(
        name=plan.dataset.name,
        demo=False,
        contaminated=False,
        warning=_warning(plan),
        recipe=_recipe(plan),
        documents_sha256="",  # shards are published without the documents they were made from
        tokenizer=describe_file(copy),
        vocab_size=plan.dataset.vocab_size,
        train=_split(train, bos_id),
        val=_split(val, bos_id),
        reference_points={
            "uniform": uniform_bits_per_byte(plan.dataset.vocab_size, val.tokens, val.scored_bytes),
            "unigram": unigram_bits_per_byte(train.counts, predicted, val.scored_bytes),
        },
    )
    if manifest != read_manifest(plan.folder):
        with tempfile.TemporaryDirectory(prefix=".manifest-", dir=plan.folder) as unfinished:
            write_manifest(pathlib.Path(unfinished), manifest)
            os.replace(pathlib.Path(unfinished) / FILE_NAME, plan.folder / FILE_NAME)
    return manifest


def _split(facts: SplitFacts, bos_id: int) -> Split:
    """What is known of the text is what its tokens stand for."""
    return Split(
        documents=int(facts.counts[bos_id]) if bos_id >= 0 else 0,
        tokens=facts.tokens,
        text_bytes=facts.scored_bytes,
        scored_bytes=facts.scored_bytes,
        shards=facts.shards,
    )


def _recipe(plan: FetchPlan) -> dict[str, object]:
    return {
        FETCHED_FROM: plan.request.source.name,
        "commit": plan.request.source.commit,
        "manifest_sha256": hashlib.sha256(plan.manifest).hexdigest(),
        "path": plan.dataset.path,
        "train_shards": plan.train_shards,
        "train_shards_published": plan.dataset.files_train,
        "headers_written": plan.request.no_header,
    }


def _warning(plan: FetchPlan) -> str:
    parts = []
    if not plan.request.source.name.startswith(f"{DEFAULT_REPOSITORY}@"):
        parts.append(
            f"These shards are from {plan.request.source.name}: a score on them compares only with scores on the same "
            "files."
        )
    if plan.dataset.has_own_byte_counts:
        parts.append(
            f"They are published with byte counts of their own ({VAL_BYTES_KEY}), which golfray does not read: its "
            "bytes are those of the transformed text."
        )
    return " ".join(parts)
