"""A corpus from a person's own text files: what is the same twice, what is validation, and what is said about it."""

from __future__ import annotations

import array
import dataclasses
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import sentencepiece

from golfray.config.sizes import count_text
from golfray.data.build import Contents, split_indices, trained_tokenizer_file, write_corpus
from golfray.data.byte_accounting import find_inexact, has_byte_fallback
from golfray.data.digest import digest_content
from golfray.data.document_spool import DocumentSpool, SpooledDocuments, open_spool
from golfray.data.errors import DataError
from golfray.data.manifest import Manifest, describe_file
from golfray.data.names import check_name, check_path, check_text
from golfray.data.progress import Progress
from golfray.data.text_files import TextFormat, read_text_files
from golfray.data.tokenizer import NORMALIZER, check_vocab_size, load_tokenizer, train_tokenizer
from golfray.data.write_once import make_folder_once

DEFAULT_VAL_SHARE = 0.05
DEFAULT_VOCAB_SIZE = 1024
OVERLAP_CHOICES = ("refuse", "drop", "keep")


@dataclasses.dataclass(frozen=True)
class OwnText:
    """What to build and from what.

    Validation is ``val_files`` where some are given, else ``val_documents`` documents of ``files``, else the share
    ``val_share`` of them (at least one; 5 % where that is None too). ``overlap`` says what becomes of training
    documents that are in ``val_files`` too: the build is refused, they are dropped from training, or they are kept and
    the corpus is marked contaminated. ``tokenizer`` is a SentencePiece model; without one a tokenizer of ``vocab_size``
    pieces (1,024 where that is None) is trained on the training documents.
    """

    name: str
    files: Sequence[pathlib.Path]
    form: TextFormat = dataclasses.field(default_factory=TextFormat)
    val_files: Sequence[pathlib.Path] = ()
    val_documents: int | None = None
    val_share: float | None = None
    overlap: str = "refuse"
    tokenizer: pathlib.Path | None = None
    vocab_size: int | None = None
    seed: int = 1337
    shard_tokens: int = 100_000_000

    def check(self) -> None:
        """Raise ``DataError`` for the first value that cannot be meant."""
        check_name("--name", self.name)
        for what, paths in (("FILE", self.files), ("--val", self.val_files)):
            for path in paths:
                check_path(what, path)
        if self.tokenizer is not None:
            check_path("--tokenizer", self.tokenizer)
        for what, text in (("--separator", self.form.separator), ("--text-key", self.form.text_key)):
            if text is not None:
                check_text(what, text)
        if not self.name.strip() or "/" in self.name or self.name.startswith("."):
            raise DataError(f"--name must be fit for a file and not begin with a dot, got {self.name!r}")
        chosen = {"--val": self.val_files, "--val-documents": self.val_documents, "--val-share": self.val_share}
        if len(both := [option for option, value in chosen.items() if value not in (None, ())]) > 1:
            raise DataError(f"{' and '.join(both)} say the same thing twice: what is validated on; leave one out")
        if self.val_share is not None and not 0 < self.val_share < 1:
            raise DataError(f"--val-share must be above 0 and below 1, got {self.val_share:g}")
        if self.val_documents is not None and self.val_documents < 1:
            raise DataError(f"--val-documents must be at least 1, got {self.val_documents}")
        if self.overlap not in OVERLAP_CHOICES:
            raise DataError(f"--overlap must be one of {', '.join(OVERLAP_CHOICES)}, got {self.overlap!r}")
        if self.overlap != OVERLAP_CHOICES[0] and not self.val_files:
            raise DataError(f"--overlap {self.overlap} is about the files of --val, and none is given")
        if self.tokenizer is not None and self.vocab_size is not None:
            raise DataError("--tokenizer has its own number of pieces: leave --vocab-size out")
        if self.vocab_size is not None:
            check_vocab_size(self.vocab_size, "--vocab-size")
        if not 0 < self.shard_tokens < 2**31:
            raise DataError(f"--shard-tokens must be at least 1 and below {2**31}, got {self.shard_tokens}")


def name_of(folder: pathlib.Path) -> str:
    """The name of a corpus that is called as its folder. Raises ``DataError`` where no corpus can be called so."""
    name = folder.absolute().name
    if name.startswith("."):
        raise DataError(f"--out {folder}: a corpus is named as its folder, and no name begins with a dot; give --name")
    return name


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Numbers of the documents that go into each split, in order, and what was found on the way.

    ``doubled`` and ``dropped`` documents are in no split; ``shared`` validation documents are in training too.
    """

    train: Sequence[int]
    val: Sequence[int]
    doubled: int
    dropped: int
    shared: int


def build_own_text(request: OwnText, folder: pathlib.Path, say: Callable[[str], None] = lambda line: None) -> Manifest:
    """Build ``folder``, which must not exist, and return its manifest; ``say`` is told what is done and found.

    The text is read once and kept on the disk of ``folder`` meanwhile, as large as it is unpacked. Memory: about 40
    bytes a document, and the larger of ten times the text that the tokenizer is trained on (at most 64 MB of it) and
    sixty times the longest document (at most 16 MB).

    Raises ``DataError`` for text, tokenizer or values that do not fit, and ``CannotWriteError`` (full disk, read-only
    folder); nothing is left behind then.
    """
    check_path("--out", folder)
    if folder.name in ("", ".."):
        raise DataError(f"--out {folder}: must end in the name of the folder to write")
    check_name("--out", folder.name)
    request.check()
    if folder.exists() or folder.is_symlink():
        raise DataError(f"{folder}: is there already; a corpus is written once: choose another --out, or delete it")
    written: list[Manifest] = []
    remedy = "choose an --out on a disk that can be written and has room"
    if not make_folder_once(folder, lambda unfinished: written.append(_fill(unfinished, request, say)), remedy):
        raise DataError(f"{folder}: another process has just built it; choose another --out, or delete it")
    return written[0]


def _fill(folder: pathlib.Path, request: OwnText, say: Callable[[str], None]) -> Manifest:
    given = None if request.tokenizer is None else _load_given(request.tokenizer, say)
    identity = _identity(given)
    paths = [*request.val_files, *request.files]
    with open_spool(folder) as spool:
        blank = 0
        progress = Progress(say)
        for document in read_text_files(paths, request.form):
            if key := identity(document.text):
                spool.add(document, digest_content(key))
            else:
                blank += 1
            progress.at(f"read {_documents(len(spool))} so far")
        say(
            f"read {_documents(len(spool) + blank)} from {count_text(len(paths), 'file')}: "
            f"{spool.total_bytes:,} bytes of text"
        )
        if blank:
            say(f"left out {_documents(blank)} without any text")
        parts = _split(spool, request, say)
        train, val = SpooledDocuments(spool, parts.train), SpooledDocuments(spool, parts.val)
        say(
            f"split with seed {request.seed}: {_documents(len(train))} to train on, "
            f"{_documents(len(val))} to validate on"
        )
        if given is None or request.tokenizer is None:
            vocab_size = request.vocab_size or DEFAULT_VOCAB_SIZE
            model, file = train_tokenizer(train, vocab_size), trained_tokenizer_file(request.name, vocab_size)
            say(f"trained a tokenizer of {vocab_size:,} pieces on the training documents")
        else:
            model, file = given.serialized_model_proto(), f"{request.tokenizer.stem}.model"
        contents = Contents(
            name=request.name,
            demo=False,
            contaminated=parts.shared > 0,
            warning=f"{parts.shared:,} of its {len(val):,} validation documents are training documents too."
            if parts.shared
            else "",
            recipe=_recipe(request, parts, blank),
            tokenizer_file=file,
            model=model,
            train=train,
            val=val,
            shard_tokens=request.shard_tokens,
        )
        return write_corpus(folder, contents, say)


def _load_given(path: pathlib.Path, say: Callable[[str], None]) -> sentencepiece.SentencePieceProcessor:
    tokenizer = load_tokenizer(path)
    if tokenizer.bos_id() < 0:
        raise DataError(f"{path}: has no BOS piece, so documents could not be told apart; use another tokenizer")
    for inexact in find_inexact(tokenizer):
        say(f"warning: {path}: {inexact.why}")
    return tokenizer


def _identity(given: sentencepiece.SentencePieceProcessor | None) -> Callable[[str], bytes]:
    """What two texts share when they become the same tokens; empty for a text that becomes none."""
    if given is None:
        normalizer = sentencepiece.SentencePieceNormalizer(rule_name=NORMALIZER)
        return lambda text: _normalised(normalizer, text)
    if has_byte_fallback(given):
        return lambda text: _normalised(given, text)
    # Characters that it lacks all become the same token.
    return lambda text: numpy.array(given.encode(text), dtype="<u2").tobytes()


def _normalised(
    normalizer: sentencepiece.SentencePieceNormalizer | sentencepiece.SentencePieceProcessor, text: str
) -> bytes:
    return str(normalizer.normalize(text)).strip("\u2581 ").encode("utf-8")


def _split(spool: DocumentSpool, request: OwnText, say: Callable[[str], None]) -> _Parts:
    same = spool.same_as_earlier()
    given = sum(file < len(request.val_files) for file in spool.files)
    shared = {number: first for number, first in same.items() if first < given <= number}
    if shared and request.overlap == "refuse":
        raise DataError(
            f"{len(set(shared.values())):,} of the {given:,} validation documents are training documents too, such as "
            f"{_place(spool, request, min(shared))}, which is {_place(spool, request, shared[min(shared)])}; "
            "--overlap drop leaves them out of training, --overlap keep trains on them and marks the corpus as "
            "contaminated"
        )
    copies = {first: number for number, first in sorted(shared.items(), reverse=True)}
    kept = set(copies.values()) if request.overlap == "keep" else set()
    dropped = set(shared) if request.overlap == "drop" else set()
    doubled = set(same) - kept - dropped
    if doubled:
        first = min(doubled)
        say(
            f"left out {_documents(len(doubled))} that another one is the same as, such as "
            f"{_place(spool, request, first)}, which is {_place(spool, request, same[first])}"
        )
    if dropped:
        say(f"left {_documents(len(dropped))} out of training that --val has too")
    if kept:
        say(f"warning: {_documents(len(kept))} of --val are trained on too; the corpus is marked as contaminated")
    left = array.array("Q", (number for number in range(len(spool)) if number not in same or number in kept))
    train, val = _cut(left, given, request)
    return _Parts(train, val, len(doubled), len(dropped), len(kept))


def _cut(numbers: array.array[int], given: int, request: OwnText) -> tuple[Sequence[int], Sequence[int]]:
    """Training and validation, both in the order in which they are written."""
    if request.val_files:
        val = array.array("Q", (number for number in numbers if number < given))
        train = array.array("Q", (number for number in numbers if number >= given))
        if not train:
            raise DataError("no document is left to train on: all of them are in the files of --val")
        random.Random(request.seed).shuffle(train)
        return train, val
    if len(numbers) < 2:
        raise DataError(
            f"{_documents(len(numbers))} in all, but training needs one and validation another; --separator cuts .txt "
            "files into documents, and --val names files to validate on"
        )
    if request.val_documents is not None and request.val_documents >= len(numbers):
        raise DataError(
            f"--val-documents {request.val_documents}: must be fewer than the {_documents(len(numbers))} that there are"
        )
    share = DEFAULT_VAL_SHARE if request.val_share is None else request.val_share
    count = request.val_documents or min(max(1, round(share * len(numbers))), len(numbers) - 1)
    parts = split_indices(len(numbers), request.seed, count)
    train, val = (array.array("Q", (numbers[index] for index in part)) for part in parts)
    return train, val


def _recipe(request: OwnText, parts: _Parts, blank: int) -> dict[str, Any]:
    def entries(paths: Sequence[pathlib.Path]) -> list[dict[str, Any]]:
        return [dataclasses.asdict(describe_file(path)) for path in paths]

    return {
        "files": entries(request.files),
        "val_files": entries(request.val_files),
        "text_key": request.form.text_key,
        "separator": request.form.separator,
        "shuffle_seed": request.seed,
        "overlap": request.overlap,
        "documents_left_out": {"blank": blank, "doubled": parts.doubled, "overlapping": parts.dropped},
        "shard_tokens": request.shard_tokens,
        "sentencepiece": sentencepiece.__version__,
    }


def _place(spool: DocumentSpool, request: OwnText, number: int) -> str:
    return f"{[*request.val_files, *request.files][spool.files[number]]}:{spool.lines[number]}"


def _documents(number: int) -> str:
    return count_text(number, "document")
