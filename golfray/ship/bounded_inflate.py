"""Compressed bytes from anywhere: no more memory is taken than the bytes that are expected, whatever they claim."""

from __future__ import annotations

import lzma
import zlib
from typing import Any

from golfray.core.codec import LZMA_FILTER, codec_module

# The fewest bytes that a zstd block of 128 KiB takes are four.
_ZSTD_BYTES_AT_ONCE = 1024


def inflate(packed: bytes, codec: str, length: int) -> bytes:
    """The ``length`` bytes inside ``packed``.

    Raises ``ValueError`` where they are damaged, cut, hold another number of bytes or have bytes after their end, and
    where the codec is unknown or not installed.
    """
    try:
        found, ended = _READERS[codec](packed, length + 1)
    except KeyError as error:
        raise ValueError(f"artifact's codec is {codec!r}; known: {', '.join(_READERS)}") from error
    except ImportError as error:
        raise ValueError(str(error)) from error
    if len(found) > length:
        raise ValueError(f"artifact inflates to more than the {length} bytes it says")
    if len(found) < length or not ended:
        raise ValueError(
            f"artifact is cut short or has bytes after its end: {codec} gave {len(found)} of {length} bytes"
        )
    return found


def _damaged(codec: str, error: Exception) -> ValueError:
    return ValueError(f"artifact is damaged: not {codec} data: {error}")


def _inflate_zlib(packed: bytes, limit: int) -> tuple[bytes, bool]:
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(packed, limit)
    except zlib.error as error:
        raise _damaged("zlib", error) from error
    return found, reader.eof and not reader.unused_data


def _inflate_lzma(packed: bytes, limit: int) -> tuple[bytes, bool]:
    reader = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[LZMA_FILTER])
    try:
        found = reader.decompress(packed, limit)
    except lzma.LZMAError as error:
        raise _damaged("lzma", error) from error
    return found, reader.eof and not reader.unused_data


def _inflate_zstd(packed: bytes, limit: int) -> tuple[bytes, bool]:
    module: Any = codec_module("zstd")
    # No frame of ours has a window beyond the next power of two of its content.
    reader = module.ZstdDecompressor(max_window_size=max(2 * limit, 2**20)).decompressobj()
    parts, size = [], 0
    try:
        for start in range(0, len(packed), _ZSTD_BYTES_AT_ONCE):
            end = start + _ZSTD_BYTES_AT_ONCE
            parts.append(reader.decompress(packed[start:end]))
            size += len(parts[-1])
            if size >= limit or reader.eof:
                return b"".join(parts), reader.eof and not reader.unused_data and end >= len(packed)
    except module.ZstdError as error:
        raise _damaged("zstd", error) from error
    return b"".join(parts), False


def _inflate_brotli(packed: bytes, limit: int) -> tuple[bytes, bool]:
    module: Any = codec_module("brotli")
    reader = module.Decompressor()
    try:
        parts = [reader.process(packed, output_buffer_limit=limit)]
        while parts[-1] and not reader.is_finished() and sum(map(len, parts)) < limit:
            parts.append(reader.process(b"", output_buffer_limit=limit))
    except module.error as error:
        raise _damaged("brotli", error) from error
    return b"".join(parts), reader.is_finished()


_READERS = {"zlib": _inflate_zlib, "lzma": _inflate_lzma, "zstd": _inflate_zstd, "brotli": _inflate_brotli}
