"""From documents to a corpus folder: split, tokenizer, shards, reference points and manifest, written once."""

from __future__ import annotations

import array
import dataclasses
import hashlib
import json
import logging
import pathlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sentencepiece

from golfray.core.byte_table import build_byte_table
from golfray.data.errors import DataError
from golfray.data.manifest import FORMAT, Manifest, Split, check_files, describe_file, read_manifest, write_manifest
from golfray.data.model_file import ModelFacts, read_model_facts
from golfray.data.progress import Progress
from golfray.data.reference_points import measure_reference_points
from golfray.data.shard_layout import MAX_VOCAB_SIZE
from golfray.data.split_tally import SplitTally, tally_split
from golfray.data.token_files import write_shards
from golfray.data.tokenizer import train_tokenizer
from golfray.data.write_once import make_folder_once

logger = logging.getLogger(__name__)

# Text that is encoded at once: enough for several threads, little beside what a process needs anyway.
BATCH_CHARACTERS = 1 << 21


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides what a corpus is; two recipes that differ are built side by side.

    ``source`` names the documents so exactly that other documents need another ``source``. ``contaminated`` says that
    the training part overlaps validation documents. ``warning`` is shown beside every score on this corpus.
    """

    name: str
    source: str
    shuffle_seed: int
    val_documents: int
    vocab_size: int
    shard_tokens: int
    demo: bool
    contaminated: bool
    warning: str

    def key(self) -> str:
        """16 hex digits of the hash over the recipe, the format, and the version of what trains the tokenizer."""
        facts = {"format": FORMAT, "sentencepiece": sentencepiece.__version__, **dataclasses.asdict(self)}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def build_corpus(recipe: Recipe, read_documents: Callable[[], list[str]], home: pathlib.Path) -> pathlib.Path:
    """The folder ``<home>/corpora/<name>-<key>``, built from ``read_documents()`` where it is not there yet.

    Either way every file is checked against the manifest. Raises ``DataError`` on documents that do not fit the
    recipe, on files that changed since they were built, and where ``home`` cannot be written.
    """
    folder = home / "corpora" / f"{recipe.name}-{recipe.key()}"
    started = time.monotonic()
    if make_folder_once(folder, lambda unfinished: _fill(unfinished, recipe, read_documents())):
        logger.info("%s: built in %.1f s", folder, time.monotonic() - started)
    manifest = read_manifest(folder)
    if manifest is None:
        raise DataError(f"{folder}: no manifest of the format {FORMAT} in it; delete the folder to have it built anew")
    check_files(folder, manifest)
    return folder


def split_indices(count: int, seed: int, val_documents: int) -> tuple[Sequence[int], Sequence[int]]:
    """Shuffle the numbers below ``count`` by the seed and cut: (training, validation), validation being the first.

    Raises ``DataError`` where a split would be empty.
    """
    if not 0 < val_documents < count:
        raise DataError(f"0 < val_documents < documents must hold, got {val_documents} of {count} documents")
    shuffled = array.array("Q", range(count))
    random.Random(seed).shuffle(shuffled)
    return shuffled[val_documents:], shuffled[:val_documents]


def split_documents(documents: list[str], seed: int, val_documents: int) -> tuple[list[str], list[str]]:
    """:func:`split_indices` of the documents themselves: (training, validation).

    Raises ``DataError`` where a split would be empty or the same document would be in both.
    """
    train, val = (
        [documents[index] for index in indices] for indices in split_indices(len(documents), seed, val_documents)
    )
    if both := set(val) & set(train):
        raise DataError(
            f"{len(both)} of the {val_documents} validation documents are training documents too, "
            f"the first beginning {min(both)[:60]!r}; leave doubled documents out"
        )
    return train, val


@dataclasses.dataclass(frozen=True)
class Contents:
    """What is to be written into a corpus folder; ``train`` and ``val`` are read once, in order."""

    name: str
    demo: bool
    contaminated: bool
    warning: str
    recipe: dict[str, Any]
    tokenizer_file: str
    model: bytes
    train: Sequence[str]
    val: Sequence[str]
    shard_tokens: int


def write_corpus(folder: pathlib.Path, contents: Contents, say: Callable[[str], None] = lambda line: None) -> Manifest:
    """Fill an empty folder with tokenizer, shards and, last, the manifest, which is returned.

    Holds in memory about 60 times the bytes of the longest document, 200 MB at least, however many there are.
    ``say`` is told of every shard. Raises ``OSError`` where the folder cannot be written, and ``DataError`` where no
    byte of the validation text is scored.
    """
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=contents.model)
    vocab_size = int(tokenizer.vocab_size())
    table = build_byte_table(tokenizer, MAX_VOCAB_SIZE)
    facts = read_model_facts(contents.model)
    tokenizer_path = folder / contents.tokenizer_file
    tokenizer_path.write_bytes(contents.model)
    digest = hashlib.sha256()

    def write_split(name: str, documents: Sequence[str]) -> tuple[Split, SplitTally, list[pathlib.Path]]:
        done = text_bytes = normalised_bytes = 0
        progress = Progress(say)

        def encoded() -> Iterator[list[int]]:
            nonlocal done, text_bytes, normalised_bytes
            for batch in _batches(documents):
                progress.at(f"encoded {done:,} of {len(documents):,} {name} documents")
                for document, ids in zip(batch, tokenizer.encode(batch, num_threads=-1), strict=True):
                    digest.update(json.dumps({"text": document}, ensure_ascii=False).encode("utf-8") + b"\n")
                    text_bytes += len(document.encode("utf-8"))
                    normalised_bytes += len(normalised_text(tokenizer, facts, document).encode("utf-8"))
                    yield [tokenizer.bos_id(), *ids]
                done += len(batch)

        paths = write_shards(
            folder,
            name,
            encoded(),
            contents.shard_tokens,
            on_shard=lambda path: say(f"wrote {path.name}"),
        )
        tally = tally_split(paths, table, vocab_size)
        split = Split(
            documents=len(documents),
            tokens=tally.tokens,
            text_bytes=text_bytes,
            scored_bytes=tally.scored_bytes,
            shards=[describe_file(path) for path in paths],
            normalised_bytes=normalised_bytes,
        )
        return split, tally, paths

    val, val_tally, val_paths = write_split("val", contents.val)
    if val.scored_bytes == 0:
        raise DataError(
            f"the tokenizer {contents.tokenizer_file} knows nothing of the validation text: no byte is scored"
        )
    train, train_tally, _ = write_split("train", contents.train)
    manifest = Manifest(
        name=contents.name,
        demo=contents.demo,
        contaminated=contents.contaminated,
        warning=" ".join(part for part in (contents.warning, _lost_bytes(val)) if part),
        recipe=contents.recipe,
        documents_sha256=digest.hexdigest(),
        tokenizer=describe_file(tokenizer_path),
        vocab_size=vocab_size,
        train=train,
        val=val,
        reference_points=measure_reference_points(train_tally, val_tally, val_paths, tokenizer),
    )
    write_manifest(folder, manifest)
    return manifest


def normalised_text(tokenizer: sentencepiece.SentencePieceProcessor, facts: ModelFacts, document: str) -> str:
    """The text that a document is to the tokenizer, without the space that it puts at one end."""
    text = str(tokenizer.normalize(document)).replace("\u2581", " ")
    if facts.add_dummy_prefix:
        return text[:-1] if facts.treat_whitespace_as_suffix else text[1:]
    return text


def _lost_bytes(val: Split) -> str:
    """A warning where the bytes that scores divide by are not those of the text."""
    if val.scored_bytes == val.normalised_bytes or not val.normalised_bytes:
        return ""
    share = 100 * (1 - val.scored_bytes / val.normalised_bytes)
    return (
        f"Its tokenizer counts {val.scored_bytes:,} bytes for {val.normalised_bytes:,} bytes of validation text "
        f"({abs(share):.3g} % {'lost' if share > 0 else 'too many'}): "
        "bits per byte on it compare only with scores under the same tokenizer."
    )


def _batches(documents: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _fill(folder: pathlib.Path, recipe: Recipe, documents: list[str]) -> None:
    train, val = split_documents(documents, recipe.shuffle_seed, recipe.val_documents)
    contents = Contents(
        name=recipe.name,
        demo=recipe.demo,
        contaminated=recipe.contaminated,
        warning=recipe.warning,
        recipe={**dataclasses.asdict(recipe), "sentencepiece": sentencepiece.__version__},
        tokenizer_file=trained_tokenizer_file(recipe.name, recipe.vocab_size),
        model=train_tokenizer(train, recipe.vocab_size),
        train=train,
        val=val,
        shard_tokens=recipe.shard_tokens,
    )
    write_corpus(folder, contents)


def trained_tokenizer_file(name: str, vocab_size: int) -> str:
    """File name of a tokenizer that was trained for a corpus."""
    return f"{name}_{vocab_size}_bpe.model"
