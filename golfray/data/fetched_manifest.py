"""golfray's own manifest of a fetched dataset, so that it opens like any other corpus and can be checked later."""

from __future__ import annotations

import hashlib
import pathlib
import shutil

from golfray.data.errors import DataError
from golfray.data.fetch_plan import FETCHED_FROM, FetchPlan
from golfray.data.fetch_shards import SplitFacts
from golfray.data.manifest import Manifest, Split, describe_file, read_manifest, write_manifest
from golfray.data.overlap import Overlap
from golfray.data.published_manifest import DEFAULT_REPOSITORY, VAL_BYTES_KEY
from golfray.data.reference_points import counted_points


def write_fetched_manifest(
    plan: FetchPlan, tokenizer: pathlib.Path, val: SplitFacts, train: SplitFacts, overlap: Overlap
) -> Manifest:
    """Write ``manifest.json`` and a copy of the tokenizer beside the shards, where they are not there already.

    The reference points are those that the token counts give: ``uniform`` and ``unigram``. ``overlap`` has looked for
    the validation documents in the training shards. Raises ``DataError`` where no validation token stands for any byte,
    and ``OSError``.
    """
    if val.tally.scored_bytes == 0:
        raise DataError(f"{plan.folder}: no validation token stands for any text with the tokenizer {tokenizer.name}")
    copy = plan.folder / tokenizer.name
    if not copy.is_file() or describe_file(copy) != describe_file(tokenizer):
        copy.unlink(missing_ok=True)
        shutil.copyfile(tokenizer, copy)
    contaminated = _is_contaminated(plan, val, train, overlap)
    manifest = Manifest(
        name=plan.dataset.name,
        demo=False,
        contaminated=contaminated,
        warning=" ".join([*_warnings(plan), *_overlap_warnings(contaminated, overlap)]),
        recipe=_recipe(plan),
        documents_sha256="",  # shards are published without the documents they were made from
        tokenizer=describe_file(copy),
        vocab_size=plan.dataset.vocab_size,
        train=_split(train),
        val=_split(val),
        reference_points=counted_points(train.tally, val.tally, plan.dataset.vocab_size),
    )
    if manifest != read_manifest(plan.folder):
        write_manifest(plan.folder, manifest)
    return manifest


def _is_contaminated(plan: FetchPlan, val: SplitFacts, train: SplitFacts, overlap: Overlap) -> bool | None:
    """Whether validation documents are training documents too; None where documents cannot all be told apart.

    They cannot where BOS is nowhere, or not in front of as many of them as the source says there are.
    """
    if overlap.found:
        return True
    told_apart = val.tally.documents > 0 and train.tally.documents > 0
    return False if told_apart and plan.dataset.docs_val in (None, val.tally.documents) else None


def _overlap_warnings(contaminated: bool | None, overlap: Overlap) -> list[str]:
    if contaminated:
        return [f"{overlap.found:,} of its {overlap.documents:,} validation documents are training documents too."]
    return [] if contaminated is False else ["Not all of its documents begin with BOS, so none could be compared."]


def _split(facts: SplitFacts) -> Split:
    """What is known of the text is what its tokens stand for."""
    return Split(
        documents=facts.tally.documents,
        tokens=facts.tally.tokens,
        text_bytes=facts.tally.scored_bytes,
        scored_bytes=facts.tally.scored_bytes,
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


def _warnings(plan: FetchPlan) -> list[str]:
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
    return parts
