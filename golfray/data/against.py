"""Other validation data that training documents are looked for in: shards under any tokenizer, or text."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import sentencepiece

from golfray.core.shards import list_shards
from golfray.data.digest import digest_content, digest_tokens
from golfray.data.errors import DataError
from golfray.data.manifest import read_manifest
from golfray.data.overlap import Overlap
from golfray.data.split_tally import DocumentSpan, tally_split
from golfray.data.text_files import TextFormat, read_text_files
from golfray.data.token_files import read_token_documents
from golfray.data.tokenizer import NORMALIZER, load_tokenizer


@dataclasses.dataclass(frozen=True)
class Against:
    """The documents of ``path`` to look for: by their tokens where ``by_tokens``, else by their text.

    What is looked for by tokens is told to ``overlap`` while the training shards are scanned.
    """

    path: pathlib.Path
    overlap: Overlap
    by_tokens: bool

    def read_texts(self, train: Sequence[pathlib.Path], tokenizer: sentencepiece.SentencePieceProcessor) -> None:
        """Decode every training document and look for its text. Raises what ``read_chunks`` raises."""
        normalizer = sentencepiece.SentencePieceNormalizer(rule_name=NORMALIZER)
        start = 0
        for document in read_token_documents(train, tokenizer.bos_id()):
            text = str(tokenizer.decode(document.tolist()))
            self.overlap.look(DocumentSpan(start, len(document) - 1, _digest_text(normalizer, text)))
            start += len(document)


def open_against(
    path: pathlib.Path, tokenizer: sentencepiece.SentencePieceProcessor, other: pathlib.Path | None
) -> Against:
    """The documents of a text file, of one shard, or of the validation shards of a folder.

    The shards' tokenizer is ``other``, else what a golfray manifest beside them names, else ``tokenizer``, the one of
    the data to check. Raises ``DataError`` where nothing can be read there or its tokens are beyond its tokenizer.
    """
    if path.is_dir():
        try:
            shards = list_shards(path, "val")
        except FileNotFoundError as problem:
            raise DataError(f"{path}: no fineweb_val_*.bin here to compare with") from problem
        manifest = read_manifest(path)
        if other is None and manifest is not None:
            other = path / manifest.tokenizer.file
    elif path.suffix == ".bin":
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        shards = [path]
    elif other is not None:
        raise DataError(
            f"--against-tokenizer {other}: is about shards, and --against {path} is a text file: leave it out, or give "
            "a folder or a .bin"
        )
    else:
        return Against(path, Overlap(_digest_texts(path, tokenizer)), by_tokens=True)
    theirs = tokenizer if other is None else load_tokenizer(other)
    remedy = "give --against-tokenizer, the one that this shard was made with"
    tally_split(shards, None, int(theirs.vocab_size()), remedy)
    by_tokens = theirs.serialized_model_proto() == tokenizer.serialized_model_proto()
    return Against(path, Overlap(_digest_shards(shards, theirs, by_tokens)), by_tokens)


def _digest_texts(path: pathlib.Path, tokenizer: sentencepiece.SentencePieceProcessor) -> Iterator[tuple[bytes, int]]:
    """As these shards would have them: with EOS at the end, or without."""
    for number, document in enumerate(read_text_files([path], TextFormat())):
        if ids := tokenizer.encode(document.text):
            yield digest_tokens(ids), number
            if tokenizer.eos_id() >= 0:
                yield digest_tokens([*ids, tokenizer.eos_id()]), number


def _digest_shards(
    shards: Sequence[pathlib.Path], tokenizer: sentencepiece.SentencePieceProcessor, by_tokens: bool
) -> Iterator[tuple[bytes, int]]:
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=NORMALIZER)
    for number, document in enumerate(read_token_documents(shards, tokenizer.bos_id())):
        if document[0] != tokenizer.bos_id() or len(document) == 1:
            continue
        if by_tokens:
            yield digest_tokens(document[1:]), number
        else:
            yield _digest_text(normalizer, str(tokenizer.decode(document.tolist()))), number


def _digest_text(normalizer: sentencepiece.SentencePieceNormalizer, text: str) -> bytes:
    normalised = str(normalizer.normalize(text)).strip("\u2581")
    return digest_content(normalised.encode("utf-8"))
