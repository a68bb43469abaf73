"""Bytes to fewer bytes and back: zlib, lzma, zstd, brotli. The latter two need their packages, and say so."""

import importlib
import lzma
import platform
import sys
import types
import zlib

# Weights have no neighbours that tell anything of them, hence no contexts; the dictionary bounds a reader's memory.
LZMA_FILTER = {"id": lzma.FILTER_LZMA2, "lc": 0, "lp": 0, "pb": 0, "dict_size": 2**24}


class CodecMissing(ImportError):
    """A codec's library is not installed; the message has the command that installs it."""

    exit_code = 4


def codec_module(codec: str) -> types.ModuleType:
    """The library behind a codec. Raises :class:`CodecMissing` where it is not installed."""
    package = "zstandard" if codec == "zstd" else codec
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise CodecMissing(
            f"codec {codec} needs the package {package}: {sys.executable} -m pip install {package}"
        ) from error


def codec_version(codec: str) -> str:
    """Version of the library that compresses; lzma's own is not to be had, so Python's stands for it."""
    if codec == "zlib":
        return zlib.ZLIB_RUNTIME_VERSION
    return getattr(codec_module(codec), "__version__", platform.python_version())


def compress(content: bytes, codec: str, level: int) -> bytes:
    """Compress; the same library version gives the same bytes. zlib tries two strategies and keeps the smaller."""
    module = codec_module(codec)
    if codec == "zlib":
        return min((deflate(content, level, strategy) for strategy in (0, zlib.Z_FILTERED)), key=len)
    if codec == "lzma":
        return lzma.compress(content, lzma.FORMAT_RAW, filters=[{**LZMA_FILTER, "preset": level}])
    if codec == "zstd":
        return module.ZstdCompressor(level=level).compress(content)
    return module.compress(content, quality=level)


def deflate(content: bytes, level: int, strategy: int) -> bytes:
    """A zlib stream with the most memory, under one strategy."""
    press = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
    return press.compress(content) + press.flush()


def decompress(packed: bytes, codec: str) -> bytes:
    """What :func:`compress` was given. For our own; the ship floor reads what comes from elsewhere, within bounds."""
    module = codec_module(codec)
    if codec == "lzma":
        return lzma.decompress(packed, lzma.FORMAT_RAW, filters=[LZMA_FILTER])
    return module.ZstdDecompressor().decompress(packed) if codec == "zstd" else module.decompress(packed)


def shuffle_bytes(content: bytes, stride: int) -> bytes:
    """All bytes at places 0, stride, 2 stride, ..., then those at 1, ...; a header says so. Too short: as it is."""
    if len(content) < stride:
        return content
    return b"BSHF" + bytes([stride]) + b"".join(content[place::stride] for place in range(stride))


def shuffled_size(size: int, stride: int) -> int:
    """Bytes that :func:`shuffle_bytes` makes of ``size`` of them."""
    return size if size < stride else size + 5


def unshuffle_bytes(shuffled: bytes) -> bytes:
    """What :func:`shuffle_bytes` was given."""
    if not shuffled.startswith(b"BSHF"):
        return shuffled
    stride, planes = shuffled[4], shuffled[5:]
    content, start = bytearray(len(planes)), 0
    for place in range(stride):
        end = start + len(range(place, len(planes), stride))
        content[place::stride] = planes[start:end]
        start = end
    return bytes(content)
