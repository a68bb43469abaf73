"""Published files of uint16 tokens that have no header, and the header that makes shards of them."""

from __future__ import annotations

import numpy

from golfray.core.shards import SHARD_HEADER_INTS, SHARD_MAGIC, SHARD_VERSION

TOKEN_BYTES = 2


def header_for(tokens: int) -> bytes:
    """The 1,024 bytes in front of ``tokens`` tokens."""
    header = numpy.zeros(SHARD_HEADER_INTS, dtype="<i4")
    header[:3] = SHARD_MAGIC, SHARD_VERSION, tokens
    return header.tobytes()


def could_be_tokens(start: bytes, size: int, vocab_size: int) -> bool:
    """Whether a file of ``size`` bytes that starts so could be ids below ``vocab_size`` from its first byte on.

    Where every second word is 0 the tokens have 4 bytes each, which they must not.
    """
    words = numpy.frombuffer(start[: len(start) // TOKEN_BYTES * TOKEN_BYTES], dtype="<u2")
    return size % TOKEN_BYTES == 0 and bool((words < vocab_size).all()) and bool(words[1::2].any())
