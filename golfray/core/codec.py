"""Bytes to fewer bytes and back: zlib, lzma, zstd, brotli. The latter two need their packages, and say so."""

import importlib
import lzma
import platform
import types
import zlib

from golfray.core.tensor_rules import CODEC_LEVELS

SHUFFLE_MAGIC = b"BSHF"
# No byte has neighbours that tell its high bits, hence no contexts; the fixed dictionary bounds a reader's memory.
LZMA_FILTER = {"id": lzma.FILTER_LZMA2, "lc": 0, "lp": 0, "pb": 0, "dict_size": 2**24}


def codec_module(codec: str) -> types.ModuleType:
    """The library behind a codec. Raises ``ValueError`` where there is no such codec, ``ImportError`` without it."""
    if codec not in CODEC_LEVELS:
        raise ValueError(f"unknown codec {codec!r}; known: {', '.join(CODEC_LEVELS)}")
    package = "zstandard" if codec == "zstd" else codec
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"codec {codec} needs the package {package}: pip install {package}, or golfray[codecs]"
        ) from error


def codec_version(codec: str) -> str:
    """Version of the library that compresses; lzma's own is not to be had, so Python's stands for it."""
    module = codec_module(codec)
    if codec == "zstd":
        return ".".join(map(str, module.ZSTD_VERSION))
    return {"zlib": zlib.ZLIB_RUNTIME_VERSION, "lzma": f"python-{platform.python_version()}"}.get(
        codec
    ) or module.__version__


def compress(content: bytes, codec: str, level: int) -> bytes:
    """Compress; the same library version gives the same bytes. zlib tries two strategies and keeps the smaller."""
    module = codec_module(codec)
    if codec == "zlib":
        tries = []
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED):
            press = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
            tries.append(press.compress(content) + press.flush())
        return min(tries, key=len)
    if codec == "lzma":
        return lzma.compress(content, format=lzma.FORMAT_RAW, filters=[{**LZMA_FILTER, "preset": level}])
    if codec == "zstd":
        return module.ZstdCompressor(level=level, write_content_size=False).compress(content)
    return module.compress(content, quality=level)


def decompress(packed: bytes, codec: str, length: int) -> bytes:
    """The ``length`` bytes inside; never takes memory for much more than that, whatever the packed bytes hold.

    Raises ``ValueError`` where they are damaged, cut, or hold another number of bytes, ``ImportError`` as
    :func:`codec_module`.
    """
    module = codec_module(codec)
    try:
        found, ended = inflate(packed, codec, module, length + 1)
    except (
        zlib.error,
        lzma.LZMAError,
        getattr(module, "error", zlib.error),
        getattr(module, "ZstdError", zlib.error),
    ) as error:
        raise ValueError(f"artifact is damaged: {codec}: {error}") from error
    if len(found) > length:
        raise ValueError(f"artifact holds more than the {length} bytes it says")
    if not ended or len(found) < length:
        raise ValueError(
            f"artifact is cut short or has bytes after its end: {codec} gave {len(found)} of {length} bytes"
        )
    return found


def inflate(packed: bytes, codec: str, module: types.ModuleType, limit: int) -> tuple[bytes, bool]:
    """About ``limit`` bytes of what is inside, and whether the packed bytes ended just where their content did."""
    found = b""
    if codec == "brotli":
        reader = module.Decompressor()
        found = more = reader.process(packed, output_buffer_limit=limit)
        while more and len(found) < limit:
            found += (more := reader.process(b"", output_buffer_limit=limit))
        return found, reader.is_finished()
    if codec == "zstd":
        reader = module.ZstdDecompressor(max_window_size=max(2 * limit, 2**20)).decompressobj()
        # A few bytes can stand for 128 KiB, so they are given few at a time.
        for start in range(0, len(packed), 1024):
            found += reader.decompress(packed[start : start + 1024])
            if len(found) > limit or reader.eof:
                return found, reader.eof and start + 1024 - len(reader.unused_data) >= len(packed)
        return found, False
    reader = zlib.decompressobj() if codec == "zlib" else lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[LZMA_FILTER])
    found = reader.decompress(packed, limit)
    return found, reader.eof and not reader.unused_data


def shuffle_bytes(content: bytes, stride: int) -> bytes:
    """All bytes at places 0, stride, 2 stride, ..., then those at 1, ...; a header says so. Too short: as it is."""
    if len(content) < stride:
        return content
    return SHUFFLE_MAGIC + bytes([stride]) + b"".join(content[place::stride] for place in range(stride))


def unshuffle_bytes(shuffled: bytes) -> bytes:
    """What :func:`shuffle_bytes` was given."""
    if not shuffled.startswith(SHUFFLE_MAGIC):
        return shuffled
    stride, planes = shuffled[4], shuffled[5:]
    content, start = bytearray(len(planes)), 0
    for place in range(stride):
        count = len(range(place, len(planes), stride))
        content[place::stride] = planes[start : start + count]
        start += count
    return bytes(content)
