"""From documents to a corpus folder: split, tokenizer, shards, reference points and manifest, written once."""

import dataclasses
import hashlib
import json
import logging
import pathlib
import random
import time
from collections.abc import Callable, Iterator

import sentencepiece

from golfray.core.byte_table import build_byte_table
from golfray.data.errors import DataError
from golfray.data.manifest import FORMAT, Manifest, Split, check_files, describe_file, read_manifest, write_manifest
from golfray.data.reference_points import measure_reference_points
from golfray.data.token_files import count_scored_bytes, write_shards
from golfray.data.tokenizer import train_tokenizer
from golfray.data.write_once import make_folder_once

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides what a corpus is; two recipes that differ are built side by side.

    ``source`` names the documents so exactly that other documents need another ``source``. ``contaminated`` says that
    the training part overlaps the validation documents of the parameter-golf challenge. ``warning`` is shown beside
    every score on this corpus.
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


def split_documents(documents: list[str], seed: int, val_documents: int) -> tuple[list[str], list[str]]:
    """Shuffle by the seed and cut: (training, validation), the validation documents being the first of the shuffle.

    Raises ``DataError`` where a split would be empty or the same document would be in both.
    """
    if not 0 < val_documents < len(documents):
        raise DataError(f"0 < val_documents < documents must hold, got {val_documents} of {len(documents)} documents")
    shuffled = list(documents)
    random.Random(seed).shuffle(shuffled)
    val, train = shuffled[:val_documents], shuffled[val_documents:]
    if both := set(val) & set(train):
        raise DataError(
            f"{len(both)} of the {val_documents} validation documents are training documents too, "
            f"the first beginning {min(both)[:60]!r}; leave doubled documents out"
        )
    return train, val


def _fill(folder: pathlib.Path, recipe: Recipe, documents: list[str]) -> None:
    train, val = split_documents(documents, recipe.shuffle_seed, recipe.val_documents)
    model = train_tokenizer(train, recipe.vocab_size)
    tokenizer_path = folder / f"{recipe.name}_{recipe.vocab_size}_bpe.model"
    tokenizer_path.write_bytes(model)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    table = build_byte_table(tokenizer, recipe.vocab_size)

    def write_split(name: str, documents: list[str]) -> tuple[Split, list[pathlib.Path]]:
        lengths: list[int] = []

        def encoded() -> Iterator[list[int]]:
            for document in documents:
                ids = [tokenizer.bos_id(), *tokenizer.encode(document)]
                lengths.append(len(ids))
                yield ids

        paths = write_shards(folder, name, encoded(), recipe.shard_tokens)
        split = Split(
            documents=len(documents),
            tokens=sum(lengths),
            text_bytes=sum(len(document.encode("utf-8")) for document in documents),
            scored_bytes=count_scored_bytes(paths, table),
            shards=[describe_file(path) for path in paths],
        )
        return split, paths

    train_split, train_paths = write_split("train", train)
    val_split, val_paths = write_split("val", val)
    manifest = Manifest(
        name=recipe.name,
        demo=recipe.demo,
        contaminated=recipe.contaminated,
        warning=recipe.warning,
        recipe={**dataclasses.asdict(recipe), "sentencepiece": sentencepiece.__version__},
        documents_sha256=_hash_documents(val + train),
        tokenizer=describe_file(tokenizer_path),
        vocab_size=recipe.vocab_size,
        train=train_split,
        val=val_split,
        reference_points=measure_reference_points(train_paths, val_paths, tokenizer, val_split.scored_bytes),
    )
    write_manifest(folder, manifest)


def _hash_documents(documents: list[str]) -> str:
    """sha256 over the documents in their shuffled order, validation first, each as a line of JSON."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps({"text": document}, ensure_ascii=False).encode("utf-8") + b"\n")
    return digest.hexdigest()
