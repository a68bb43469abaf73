"""How many bytes of text each token stands for, which is what bits per byte divides by (section 3.6)."""

import dataclasses

import numpy
import sentencepiece

WORD_BOUNDARY_MARK = "\u2581"


@dataclasses.dataclass(frozen=True)
class ByteTable:
    """Per token id: UTF-8 bytes without a leading space, whether it has that space, whether it is a boundary.

    ``base_bytes`` is int64, the other two bool, all of shape (vocab_size,).
    """

    base_bytes: numpy.ndarray
    has_space: numpy.ndarray
    is_boundary: numpy.ndarray

    def count(self, inputs: numpy.ndarray, targets: numpy.ndarray) -> int:
        """Bytes of ``targets`` given the token before each: a leading space counts unless that is a boundary."""
        spaces = self.has_space[targets] & ~self.is_boundary[inputs]
        return int(self.base_bytes[targets].sum()) + int(spaces.sum())


def build_byte_table(tokenizer: sentencepiece.SentencePieceProcessor, vocab_size: int) -> ByteTable:
    """Byte table for ids 0..vocab_size-1; ids beyond the tokenizer are boundaries of 0 bytes.

    Raises ``ValueError`` if the tokenizer has more pieces than the vocabulary.
    """
    pieces = int(tokenizer.vocab_size())
    if pieces > vocab_size:
        raise ValueError(f"the tokenizer has {pieces} pieces but model.vocab_size is {vocab_size}; set it to {pieces}")
    base_bytes = numpy.zeros(vocab_size, dtype=numpy.int64)
    has_space = numpy.zeros(vocab_size, dtype=bool)
    is_boundary = numpy.ones(vocab_size, dtype=bool)
    for token in range(pieces):
        if tokenizer.is_control(token) or tokenizer.is_unknown(token) or tokenizer.is_unused(token):
            continue
        is_boundary[token] = False
        if tokenizer.is_byte(token):
            base_bytes[token] = 1
            continue
        piece = tokenizer.id_to_piece(token)
        if piece.startswith(WORD_BOUNDARY_MARK):
            has_space[token] = True
            piece = piece[1:]
        base_bytes[token] = len(piece.encode("utf-8"))
    return ByteTable(base_bytes, has_space, is_boundary)


def load_byte_table(tokenizer_path: str, vocab_size: int) -> ByteTable:
    """Byte table of a SentencePiece model file; raises ``FileNotFoundError`` or what :func:`build_byte_table` does."""
    with open(tokenizer_path, "rb") as file:
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=file.read())
    return build_byte_table(tokenizer, vocab_size)
