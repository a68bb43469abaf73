"""Digests that tell whether two documents are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy

DIGEST_BYTES = 16


class RunningDigest:
    """The digest of content that comes in pieces."""

    def __init__(self, content: bytes = b"") -> None:
        self._hash = hashlib.blake2b(content, digest_size=DIGEST_BYTES)

    def add(self, content: bytes) -> None:
        """The next piece."""
        self._hash.update(content)

    def value(self) -> bytes:
        """``DIGEST_BYTES`` bytes for all pieces so far."""
        return self._hash.digest()

    def copy(self) -> RunningDigest:
        """The same so far, to go on otherwise."""
        other = RunningDigest()
        other._hash = self._hash.copy()
        return other


def digest_content(content: bytes) -> bytes:
    """The digest of content that is there whole."""
    return RunningDigest(content).value()


def digest_tokens(tokens: Sequence[int] | numpy.ndarray) -> bytes:
    """The digest of a document from its tokens behind BOS."""
    return digest_content(numpy.asarray(tokens, dtype="<u2").tobytes())
