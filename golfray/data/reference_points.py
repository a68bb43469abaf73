"""What needs no model: bits per byte of the simplest predictors and of two compressors, on the validation text.

A trained model must beat ``unigram``; one far below ``xz -9e`` after seconds of training deserves a second look.
"""

import lzma
import math
import pathlib
import zlib
from collections.abc import Sequence

import numpy
import sentencepiece

from golfray.data.split_tally import SplitTally
from golfray.data.token_files import read_token_documents

# xz at its strongest takes about a second a MB; more text than this changes the figure little.
MAX_COMPRESSED_BYTES = 8_000_000


def uniform_bits_per_byte(vocab_size: int, val_tokens: int, val_bytes: int) -> float:
    """Bits per byte of a model that has learnt nothing: log2(vocab_size) bits for each predicted token."""
    return math.log2(vocab_size) * (val_tokens - 1) / val_bytes


def unigram_bits_per_byte(train_counts: numpy.ndarray, val_counts: numpy.ndarray, val_bytes: int) -> float:
    """Bits per byte where each token is predicted from how often it is in the training split.

    Add-one smoothing: p(t) = (n_t + 1) / (N + V). Both counts are integers of shape (vocab_size,), ``val_counts``
    those of the predicted tokens.
    """
    probability = (train_counts + 1) / (train_counts.sum() + len(train_counts))
    return float(-(val_counts * numpy.log2(probability)).sum() / val_bytes)


def compressed_bits_per_byte(text: bytes, val_bytes: int) -> dict[str, float]:
    """Bits of the compressed text over scored bytes, for zlib at level 9 and xz at preset 9 extreme."""
    return {
        "zlib -9": 8 * len(zlib.compress(text, 9)) / val_bytes,
        "xz -9e": 8 * len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)) / val_bytes,
    }


def counted_points(train: SplitTally, val: SplitTally, vocab_size: int) -> dict[str, float]:
    """The points that need no text, only how often each token occurs: ``uniform`` and ``unigram``."""
    counts, predicted = train.counts[:vocab_size], val.predicted_counts()[:vocab_size]
    return {
        "uniform": uniform_bits_per_byte(vocab_size, val.tokens, val.scored_bytes),
        "unigram": unigram_bits_per_byte(counts, predicted, val.scored_bytes),
    }


def measure_reference_points(
    train: SplitTally,
    val: SplitTally,
    val_paths: Sequence[pathlib.Path],
    tokenizer: sentencepiece.SentencePieceProcessor,
) -> dict[str, float]:
    """All reference points of a corpus in bits per scored byte; compressors get the documents joined by line breaks.

    Of more than ``MAX_COMPRESSED_BYTES`` of text the compressors get the first documents of so many bytes, and their
    points say so in their names and divide by the bytes of these.
    """
    text, is_all = _first_text(val_paths, tokenizer)
    compressed = compressed_bits_per_byte(text, val.scored_bytes if is_all else len(text))
    return {
        **counted_points(train, val, int(tokenizer.vocab_size())),
        **{name if is_all else f"{name} of {len(text) / 1e6:.0f} MB": value for name, value in compressed.items()},
    }


def _first_text(paths: Sequence[pathlib.Path], tokenizer: sentencepiece.SentencePieceProcessor) -> tuple[bytes, bool]:
    """The decoded documents, or as many as make up the limit, joined by line breaks; and whether these are all."""
    parts: list[bytes] = []
    size = 0
    documents = read_token_documents(paths, tokenizer.bos_id())
    for document in documents:
        parts.append(str(tokenizer.decode(document.tolist())).encode("utf-8"))
        size += len(parts[-1])
        if size >= MAX_COMPRESSED_BYTES:
            break
    return b"\n".join(parts), next(documents, None) is None
