"""Whether a tokenizer is the one of some shards, and whether the bytes it counts are those of the text."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import sentencepiece

from golfray.core.byte_table import ByteTable
from golfray.data.byte_accounting import Inexact, counted_bytes, decoded_bytes, encodes_again, find_inexact
from golfray.data.manifest import Manifest
from golfray.data.split_tally import DocumentSpan, SplitTally
from golfray.data.token_files import TokenFiles
from golfray.findings import Finding, error, warning

# Reasons why counted and decoded bytes differ; the others lose bytes that decoding does not show either.
EXPLAINING = ("tokenizer-inner-space", "tokenizer-first-space", "tokenizer-denormalizer")
# Documents above this are left out of a sample.
MAX_SAMPLED_TOKENS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Sample:
    """What decoding some documents has shown: bytes as counted and as decoded, how many documents differ in them, and
    how many of ``comparable`` documents are encoded to the same tokens ``again``.
    """

    documents: int
    counted_bytes: int
    decoded_bytes: int
    differing: int
    comparable: int
    again: int

    def __add__(self, other: Sample) -> Sample:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Sample(*(one + another for one, another in pairs))


def decode_sample(
    paths: Sequence[pathlib.Path],
    spans: Sequence[DocumentSpan],
    tokenizer: sentencepiece.SentencePieceProcessor,
    table: ByteTable,
) -> Sample:
    """Decode documents of a split and encode them again. Tokens must be within the table.

    A document that ends with the split may be cut, and one with unknown or control tokens does not come back: neither
    is comparable. Raises ``OSError`` where a shard cannot be read.
    """
    files = TokenFiles(paths)
    total = Sample(0, 0, 0, 0, 0, 0)
    for span in spans:
        if span.length > MAX_SAMPLED_TOKENS:
            continue
        tokens = files.read(span.start + 1, span.length)
        if tokens.max() >= len(table.base_bytes):
            continue  # found and named by the scan
        counted = counted_bytes(table, tokens, tokenizer.bos_id())
        decoded = decoded_bytes(tokenizer, table, tokens)
        if tokens[-1] == tokenizer.eos_id():
            tokens = tokens[:-1]
        is_whole = span.start + 1 + span.length < files.total_tokens
        comparable = is_whole and len(tokens) > 0 and not table.is_boundary[tokens].any()
        again = comparable and encodes_again(tokenizer, tokens)
        total += Sample(1, counted, decoded, int(counted != decoded), int(comparable), int(again))
    return total


def judge_sample(path: pathlib.Path, sample: Sample, explained: bool) -> Iterator[Finding]:
    """What a sample says against the tokenizer of the file ``path``; bytes that differ may be ``explained`` already."""
    if sample.again < sample.comparable / 2:
        yield error(
            "tokenizer-other",
            path,
            f"it encodes {sample.again} of {sample.comparable} sampled documents to the tokens that the shards have",
            "give the tokenizer that these shards were made with",
        )
    if sample.differing and not explained:
        yield error(
            "bytes-differ",
            path,
            f"{sample.differing} of {sample.documents} sampled documents count other bytes than they decode to: "
            f"{sample.counted_bytes:,} bytes in all, but {sample.decoded_bytes:,} decoded",
            "bits per byte on these shards are off by as much; is this their tokenizer?",
        )


def judge_tokenizer(
    path: pathlib.Path,
    tokenizer: sentencepiece.SentencePieceProcessor,
    table: ByteTable,
    val: SplitTally | None,
    sample: Sample,
    manifest: Manifest | None,
) -> Iterator[Finding]:
    """Every reason why the bytes cannot be exact, with the share of the validation bytes that it concerns."""
    for inexact in find_inexact(tokenizer):
        share = "" if val is None else f" ({_share(inexact, table, val, sample, manifest)})"
        yield warning(
            inexact.code,
            path,
            inexact.why + share,
            "bits per byte compare only with scores under the same tokenizer; say so beside each",
        )
    if tokenizer.bos_id() < 0:
        yield warning(
            "tokenizer-no-bos",
            path,
            "it has no BOS piece, so documents cannot be told apart and none was compared or decoded",
            "use shards whose documents begin with BOS",
        )


def _share(inexact: Inexact, table: ByteTable, val: SplitTally, sample: Sample, manifest: Manifest | None) -> str:
    occurrences = int(val.counts[inexact.tokens].sum())
    if inexact.code == "tokenizer-unknown-bytes":
        if manifest is not None and manifest.val.normalised_bytes:
            lost = 1 - val.scored_bytes / manifest.val.normalised_bytes
            return f"{100 * lost:.3g} % of the validation bytes are lost"
        least = occurrences / max(val.scored_bytes + occurrences, 1)
        return f"{occurrences:,} in the validation tokens: at least {100 * least:.3g} % of the bytes are lost"
    if inexact.code == "tokenizer-user-defined":
        weight = int((val.counts[inexact.tokens] * table.base_bytes[inexact.tokens]).sum())
        return f"{occurrences:,} in the validation tokens, {100 * weight / max(val.scored_bytes, 1):.3g} % of the bytes"
    if sample.decoded_bytes == 0:
        return "no document could be sampled"
    off = 1 - sample.counted_bytes / sample.decoded_bytes
    return f"{abs(100 * off):.3g} % of the sampled bytes are {'lost' if off >= 0 else 'counted too many'}"
