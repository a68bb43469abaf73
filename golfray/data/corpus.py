"""A corpus as the rest of golfray sees it: opened from any folder of shards, or the demo corpus, built when needed."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy
import sentencepiece

from golfray.core.byte_table import build_byte_table
from golfray.core.settings import DataSettings
from golfray.core.shards import list_shards, map_shard
from golfray.data import kjv
from golfray.data.build import Recipe, build_corpus
from golfray.data.byte_accounting import encodes_again, find_inexact
from golfray.data.errors import DataError
from golfray.data.home import golfray_home
from golfray.data.manifest import FILE_NAME, Manifest, describe_file, read_manifest
from golfray.data.reference_points import uniform_bits_per_byte
from golfray.data.shard_header import SAMPLE_TOKENS, open_shard, sample_largest_token
from golfray.data.shard_layout import MAX_VOCAB_SIZE
from golfray.data.split_tally import tally_split
from golfray.data.token_files import read_token_documents
from golfray.data.tokenizer import load_tokenizer

DEMO_RECIPE = Recipe(
    name="kjv",
    source=kjv.SOURCE,
    shuffle_seed=1337,
    val_documents=60,
    vocab_size=1024,
    shard_tokens=100_000_000,
    demo=True,
    contaminated=False,
    warning="This is the King James text, not FineWeb: no score on it is a FineWeb or parameter-golf score.",
)

CONTAMINATED = "Its training part overlaps the validation documents: no score on it may be quoted."
UNKNOWN_OVERLAP = (
    "It is unknown whether training and validation overlap: until that is known no score on it may be quoted."
)
UNKNOWN_ORIGIN = (
    f"No {FILE_NAME} says where this text is from, or whether its training and validation overlap: a score on it "
    "compares only with scores on the same files."
)

NEEDS_FINEWEB = """\
the full scale trains on FineWeb, which golfray does not have: {reason}
This fetches the published tokens, 16 GB with 80 training shards (--train-shards takes fewer; --dry-run only says what):
  golfray data fetch --to DIR
Then give the folder that it has filled:
  --set data.folder=DIR/datasets/fineweb10B_sp1024
Text of your own becomes such a folder with: golfray data build FILE... --out FOLDER
To try golfray without either, choose the laptop scale (scale: laptop in a space file, --scale laptop elsewhere)."""


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Token shards, the tokenizer they were made with, and what is known of them.

    ``val_bytes`` are the scored bytes of the whole validation split, ``reference_points`` bits per scored byte of
    predictors that need no training. ``warning`` is to be shown beside every score; it is empty where there is nothing
    to warn of. ``contaminated`` is None where it is unknown whether validation documents are training documents too,
    ``digest`` (of all its files) where there is no manifest.
    """

    name: str
    folder: pathlib.Path
    tokenizer: pathlib.Path
    vocab_size: int
    train_tokens: int
    val_tokens: int
    val_bytes: int
    reference_points: dict[str, float]
    warning: str
    is_demo: bool
    contaminated: bool | None
    digest: str | None

    def settings(self) -> DataSettings:
        """The two paths, as a trial is told them."""
        return DataSettings(folder=str(self.folder), tokenizer=str(self.tokenizer))

    def to_record(self) -> dict[str, Any]:
        """What the event log keeps of it: where it is, what is scored, whether scores may be quoted."""
        return {
            "folder": str(self.folder),
            "name": self.name,
            "reference": dict(self.reference_points),
            "warning": self.warning,
            "digest": self.digest,
            "val_tokens": self.val_tokens,
            "val_bytes": self.val_bytes,
            "contaminated": self.contaminated,
        }

    def describe(self, batch_tokens: int) -> list[str]:
        """Lines for a person before a run whose steps are ``batch_tokens`` long."""
        points = ", ".join(f"{name} {value:.2f}" for name, value in self.reference_points.items())
        steps = self.train_tokens // batch_tokens
        return [
            f"corpus {self.name}, {self.vocab_size:,} pieces: {self.train_tokens:,} training tokens "
            f"({steps:,} steps of {batch_tokens:,} before they repeat), {self.val_tokens:,} validation tokens "
            f"({self.val_bytes:,} bytes)",
            f"on its validation text, in bits per byte: {points}",
            *([self.warning] if self.warning else []),
        ]


def demo_corpus(home: pathlib.Path | None = None) -> Corpus:
    """The King James text as a corpus, built under ``home`` (default: :func:`golfray_home`) where it is not there yet.

    Raises ``DataError`` where the text is not installed or not the known one, or the built files were changed.
    """
    folder = build_corpus(DEMO_RECIPE, lambda: kjv.read_kjv_documents(kjv.find_kjv()), home or golfray_home())
    return open_corpus(folder)


def open_corpus(folder: pathlib.Path, tokenizer: pathlib.Path | None = None) -> Corpus:
    """A folder of ``fineweb_{train,val}_*.bin``; ``tokenizer`` is needed where no golfray manifest lies beside them.

    Headers and sizes are checked, and with a manifest the counts and the tokenizer's hash. Without one the scored bytes
    are counted by reading the validation shards, and the one reference point is ``uniform``. Of every shard the first,
    the middle and the last 65,536 tokens must be below the tokenizer's vocabulary; :mod:`golfray.data.check` reads all.

    Raises ``DataError`` naming the file that is missing, damaged, or not what the manifest says, with the likely cause.
    """
    folder = pathlib.Path(folder).absolute()
    try:
        paths = {split: list_shards(folder, split) for split in ("train", "val")}
    except FileNotFoundError as error:
        raise DataError(str(error)) from error
    # None is kept open: there may be more of them than files may be open.
    tokens = {split: sum(len(open_shard(path)) for path in paths[split]) for split in paths}
    manifest = read_manifest(folder)
    if manifest is not None:
        corpus = _open_with_manifest(folder, manifest, tokens, tokenizer)
    elif tokenizer is None:
        raise DataError(
            f"{folder}: no golfray {FILE_NAME} here that names the tokenizer; "
            "set data.tokenizer to the SentencePiece model these shards were made with"
        )
    else:
        corpus = _open_without_manifest(folder, paths["val"], tokens, pathlib.Path(tokenizer).absolute())
    for split in paths:
        for path in paths[split]:
            _check_ids(path, map_shard(path), corpus)
    return corpus


def choose_corpus(scale: Literal["full", "laptop"], data: DataSettings) -> Corpus:
    """The corpus of a run: what ``data`` names, or the demo corpus where it names nothing at laptop scale.

    Raises ``DataError`` at full scale without FineWeb, saying how to get it.
    """
    if data.folder:
        corpus = open_corpus(pathlib.Path(data.folder), pathlib.Path(data.tokenizer) if data.tokenizer else None)
    elif scale == "full":
        raise DataError(NEEDS_FINEWEB.format(reason="data.folder is not set."))
    else:
        corpus = demo_corpus()
    if scale == "full" and corpus.is_demo:
        raise DataError(NEEDS_FINEWEB.format(reason=f"data.folder is the demo corpus {corpus.name}."))
    return corpus


def _open_with_manifest(
    folder: pathlib.Path, manifest: Manifest, tokens: dict[str, int], tokenizer: pathlib.Path | None
) -> Corpus:
    for split, recorded in (("train", manifest.train), ("val", manifest.val)):
        if tokens[split] != recorded.tokens:
            raise DataError(
                f"{folder}: the {split} shards hold {tokens[split]} tokens, but {FILE_NAME} says {recorded.tokens}"
            )
    own = folder / manifest.tokenizer.file
    for path in (own, pathlib.Path(tokenizer).absolute() if tokenizer else own):
        if not path.is_file():
            raise DataError(f"{path}: no such tokenizer file")
        if (found := describe_file(path).sha256) != manifest.tokenizer.sha256:
            raise DataError(
                f"{path}: sha256 {found}, but {FILE_NAME} in {folder} says that these shards were made with "
                f"{manifest.tokenizer.file}, sha256 {manifest.tokenizer.sha256}"
            )
    # What a build has measured stands in its warning.
    reasons = [manifest.warning] if manifest.val.normalised_bytes is not None else _reasons(manifest.warning, own)
    if manifest.contaminated is not False:
        reasons.append(CONTAMINATED if manifest.contaminated else UNKNOWN_OVERLAP)
    return Corpus(
        name=manifest.name,
        folder=folder,
        tokenizer=own,
        vocab_size=manifest.vocab_size,
        train_tokens=tokens["train"],
        val_tokens=tokens["val"],
        val_bytes=manifest.val.scored_bytes,
        reference_points=manifest.reference_points,
        warning=" ".join(filter(None, reasons)),
        is_demo=manifest.demo,
        contaminated=manifest.contaminated,
        digest=manifest.digest,
    )


def _open_without_manifest(
    folder: pathlib.Path, val_paths: Sequence[pathlib.Path], tokens: dict[str, int], path: pathlib.Path
) -> Corpus:
    tokenizer = load_tokenizer(path)
    vocab_size = int(tokenizer.vocab_size())
    val_bytes = tally_split(val_paths, build_byte_table(tokenizer, MAX_VOCAB_SIZE), vocab_size).scored_bytes
    if val_bytes == 0:
        raise DataError(f"{folder}: no validation token stands for any text under the tokenizer {path}")
    reasons = _reasons(UNKNOWN_ORIGIN, path)
    if _is_foreign(val_paths, tokenizer):
        reasons.append(
            f"None of its first documents is encoded by {path.name} as it is here: were these shards made with another "
            "tokenizer? `golfray data check` says more."
        )
    return Corpus(
        name=folder.name,
        folder=folder,
        tokenizer=path,
        vocab_size=vocab_size,
        train_tokens=tokens["train"],
        val_tokens=tokens["val"],
        val_bytes=val_bytes,
        reference_points={"uniform": uniform_bits_per_byte(vocab_size, tokens["val"], val_bytes)},
        warning=" ".join(reasons),
        is_demo=False,
        contaminated=None,
        digest=None,
    )


def _reasons(first: str, tokenizer: pathlib.Path) -> list[str]:
    """``first``, and why the bytes of this tokenizer cannot be exact."""
    return [first, *(f"Of its tokenizer: {inexact.why}." for inexact in find_inexact(load_tokenizer(tokenizer)))]


def _is_foreign(val_paths: Sequence[pathlib.Path], tokenizer: sentencepiece.SentencePieceProcessor) -> bool:
    """Whether not one of the first whole documents comes out of the tokenizer as it went in."""
    documents = itertools.islice(read_token_documents(val_paths, tokenizer.bos_id()), 8)
    bodies = [document[1:] for document in documents if 1 < len(document) <= SAMPLE_TOKENS]
    return bool(bodies) and not any(encodes_again(tokenizer, body) for body in bodies)


def _check_ids(path: pathlib.Path, shard: numpy.ndarray, corpus: Corpus) -> None:
    if (largest := sample_largest_token(shard)) >= corpus.vocab_size:
        raise DataError(
            f"{path}: token {largest} in a sample of it, but the tokenizer {corpus.tokenizer.name} has "
            f"{corpus.vocab_size} pieces; data.tokenizer must be the one these shards were made with "
            "(`golfray data check` reads every token)"
        )
