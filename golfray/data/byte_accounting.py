"""Whether the bytes that scores divide by are those of the text: why a tokenizer's cannot be, and what shards show.

Scored bytes are counted token by token (``core.byte_table``). That is exact where every token stands for the same bytes
wherever it appears, but for one space in front; these tokenizers break it, each in its own way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy
import sentencepiece

from golfray.core.byte_table import WORD_BOUNDARY_MARK, ByteTable
from golfray.data.model_file import USER_DEFINED, read_model_facts


@dataclasses.dataclass(frozen=True)
class Inexact:
    """A reason why counted bytes differ from the text's. ``tokens`` are the ids that do it, int64; none where the
    reason lies elsewhere.
    """

    code: str
    why: str
    tokens: numpy.ndarray


def has_byte_fallback(tokenizer: sentencepiece.SentencePieceProcessor) -> bool:
    """Whether each of the 256 bytes is a piece, so that no text is unknown."""
    return sum(tokenizer.is_byte(token) for token in range(tokenizer.vocab_size())) == 256


def find_inexact(tokenizer: sentencepiece.SentencePieceProcessor) -> list[Inexact]:
    """Every reason why this tokenizer's byte accounting cannot be exact; empty for the usual ones.

    Raises ``DataError`` where the model cannot be read.
    """
    facts = read_model_facts(tokenizer.serialized_model_proto())
    found: list[Inexact] = []

    def add(code: str, why: str, tokens: Iterable[int] = ()) -> None:
        found.append(Inexact(code, why, numpy.array(list(tokens), dtype=numpy.int64)))

    if not has_byte_fallback(tokenizer):
        add(
            "tokenizer-unknown-bytes",
            "it has no byte fallback: a character it lacks becomes the unknown token, which counts 0 bytes",
            [tokenizer.unk_id()],
        )
    if user_defined := [token for token, kind in enumerate(facts.piece_types) if kind == USER_DEFINED]:
        names = ", ".join(repr(tokenizer.id_to_piece(token)) for token in user_defined[:4])
        add(
            "tokenizer-user-defined",
            f"it has {len(user_defined)} user-defined symbol(s) ({names}), which count the bytes of their names, "
            "whatever they stand for",
            user_defined,
        )
    inner = [
        token
        for token in range(tokenizer.vocab_size())
        if WORD_BOUNDARY_MARK in tokenizer.id_to_piece(token)[1:] and not tokenizer.is_control(token)
    ]
    if inner:
        add(
            "tokenizer-inner-space",
            f"{len(inner):,} of its pieces hold a space elsewhere than in front, which counts as the 3 bytes of "
            f"{WORD_BOUNDARY_MARK}",
            inner,
        )
    if not facts.add_dummy_prefix and not facts.remove_extra_whitespaces:
        add("tokenizer-first-space", "it keeps a document's first space, which is not counted behind BOS")
    if facts.changes_decoded_text:
        add("tokenizer-denormalizer", "it changes text again while it decodes (denormalizer), which no count knows of")
    return found


def counted_bytes(table: ByteTable, tokens: numpy.ndarray, bos_id: int) -> int:
    """Bytes that a document counts, its tokens (integers of shape (n,)) standing behind BOS."""
    inputs = numpy.concatenate([numpy.array([bos_id], dtype=tokens.dtype), tokens[:-1]])
    return table.count(inputs, tokens)


def decoded_bytes(tokenizer: sentencepiece.SentencePieceProcessor, table: ByteTable, tokens: numpy.ndarray) -> int:
    """UTF-8 bytes of a document's text as SentencePiece decodes it.

    Boundaries (unknown, control and unused tokens) stand for no text of their own and end a piece of it, as a space
    behind them counts as none.
    """
    if len(tokens) == 0:
        return 0
    edges = numpy.flatnonzero(table.is_boundary[tokens])
    total = 0
    for part in numpy.split(tokens, edges):
        words = part[1:] if len(part) and table.is_boundary[part[0]] else part
        total += len(str(tokenizer.decode(words.tolist())).encode("utf-8"))
    return total


def encodes_again(tokenizer: sentencepiece.SentencePieceProcessor, tokens: numpy.ndarray) -> bool:
    """Whether the decoded text of a document is encoded to the very same tokens."""
    words = tokens.tolist()
    return bool(tokenizer.encode(tokenizer.decode(words)) == words)
