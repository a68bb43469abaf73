"""The header of a token shard, and why a file has none: what first bytes and size say about where it came from."""

from __future__ import annotations

import codecs
import pathlib
import stat

import numpy

from golfray.core.shards import SHARD_HEADER_INTS, SHARD_MAGIC, SHARD_VERSION, map_shard
from golfray.data.errors import DataError
from golfray.data.shard_layout import TOKEN_BYTES
from golfray.findings import Finding, error

HEADER_BYTES = 4 * SHARD_HEADER_INTS
# llm.c writes the tokens of larger vocabularies as 4-byte integers under a magic of their own.
WIDE_TOKENS_MAGIC = 20240801
SAMPLE_TOKENS = 1 << 16
AGAIN = "fetch or build it again"
HEADERLESS = (
    "put the 1,024-byte header in front (`golfray data fetch --no-header` does), or fetch it from another source"
)

# First bytes of what is found in a shard's place, and what that is.
_STARTS = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


def header_for(tokens: int) -> bytes:
    """The 1,024 bytes in front of ``tokens`` tokens."""
    header = numpy.zeros(SHARD_HEADER_INTS, dtype="<i4")
    header[:3] = SHARD_MAGIC, SHARD_VERSION, tokens
    return header.tobytes()


def tokens_in(size: int) -> int:
    """How many tokens a shard of ``size`` bytes has."""
    return (size - HEADER_BYTES) // TOKEN_BYTES


def could_be_tokens(start: bytes, size: int, vocab_size: int) -> bool:
    """Whether a file of ``size`` bytes that starts so could be ids below ``vocab_size`` from its first byte on.

    Where every second word is 0 the tokens have 4 bytes each, which they must not.
    """
    words = numpy.frombuffer(start[: len(start) // TOKEN_BYTES * TOKEN_BYTES], dtype="<u2")
    return size % TOKEN_BYTES == 0 and bool((words < vocab_size).all()) and bool(words[1::2].any())


def diagnose_shard(path: pathlib.Path) -> Finding | None:
    """What is wrong with a shard's header or size, with the likely cause; None where both are right.

    Reads the first 132 kB only. Raises ``OSError`` where the file cannot be read.
    """
    if found := _no_file(path):
        return found
    with open(path, "rb") as file:
        return diagnose_start(path, file.read(HEADER_BYTES + TOKEN_BYTES * SAMPLE_TOKENS), path.stat().st_size)


def diagnose_start(where: object, start: bytes, size: int) -> Finding | None:
    """:func:`diagnose_shard` of a file known by its first bytes and its size; 1,024 of them do for a whole shard."""
    if size == 0:
        return error("shard-cut", where, "the file is empty", AGAIN)
    if found := _other_kind(where, start):
        return found
    if size < HEADER_BYTES:
        says = f"{size} bytes is too short for the header of {HEADER_BYTES} bytes (cut download?)"
        return error("shard-cut", where, says, AGAIN)
    magic, version, count = (int(value) for value in numpy.frombuffer(start, "<i4", 3))
    if magic != SHARD_MAGIC:
        return _wrong_magic(where, start, magic)
    if version != SHARD_VERSION:
        says = f"shard version {version}, must be {SHARD_VERSION} (written by another exporter?)"
        return error("shard-version", where, says, "export it again as version 1: tokens of 2 bytes each")
    return _wrong_size(where, size, count)


def open_shard(path: pathlib.Path) -> numpy.ndarray:
    """The tokens of a shard as :func:`golfray.core.shards.map_shard` maps them.

    Raises ``DataError`` with the likely cause where the file is no whole shard.
    """
    if finding := diagnose_shard(path):
        raise DataError.of(finding)
    return map_shard(path)


def sample_largest_token(shard: numpy.ndarray) -> int:
    """The largest id among at most 3 * 2**16 tokens: the first, the middle and the last of the shard."""
    middle = max((len(shard) - SAMPLE_TOKENS) // 2, 0)
    parts = (shard[:SAMPLE_TOKENS], shard[middle : middle + SAMPLE_TOKENS], shard[-SAMPLE_TOKENS:])
    return max(int(part.max()) for part in parts)


def _no_file(path: pathlib.Path) -> Finding | None:
    """What has a shard's name but is none that can be opened: opening a pipe would wait for whoever writes into it."""
    if path.is_symlink() and not path.exists():
        where_to = f"a symbolic link to {path.readlink()}, which is not there"
        return error("shard-no-file", path, f"must be a file, but is {where_to}", AGAIN)
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return None
    kind = "a folder" if stat.S_ISDIR(mode) else "a named pipe" if stat.S_ISFIFO(mode) else "a device or a socket"
    return error("shard-no-file", path, f"must be a file, but is {kind}", "move it away")


def _other_kind(where: object, start: bytes) -> Finding | None:
    """A file of another kind, known by how it begins."""
    for mark, kind in _STARTS.items():
        if start.startswith(mark):
            return error("shard-magic", where, f"this is a {kind} file, no token shard", "unpack it first")
    if start.startswith(b"\x93NUMPY"):
        return error("shard-magic", where, "this is a NumPy array file, no token shard", "write its tokens as a shard")
    if start.startswith(b"version https://git-lfs"):
        return error("shard-magic", where, "this is a Git LFS pointer, not the file it points to", "run: git lfs pull")
    if (text := _as_text(start[:HEADER_BYTES])) is not None:
        page = text.lstrip()[:1] in ("<", "{")
        kind = "a web page or an error message instead of the file" if page else "text"
        return error("shard-magic", where, f"this is {kind}: it begins {text[:40]!r}", AGAIN)
    return None


def _wrong_magic(where: object, start: bytes, magic: int) -> Finding:
    says = f"magic {magic}, must be {SHARD_MAGIC}"
    if int(numpy.frombuffer(start, ">i4", 1)[0]) == SHARD_MAGIC:
        return error(
            "shard-magic",
            where,
            f"{says}: written with the bytes of each number in reverse (big-endian)",
            "write it again as little-endian",
        )
    if magic == WIDE_TOKENS_MAGIC:
        return error(
            "shard-magic",
            where,
            f"{says}: llm.c's shard of 4-byte tokens, for vocabularies above 65,536",
            "use shards of 2-byte tokens",
        )
    if not any(start[12:HEADER_BYTES]):
        says += ", in what is a header otherwise"
        return error("shard-magic", where, f"{says}: another program's format, or a damaged file", AGAIN)
    words = numpy.frombuffer(start[: len(start) // 2 * 2], "<u2")
    wide = not words[1::2].any()
    if _looks_like_tokens(words[::2] if wide else words):
        first = ", ".join(str(int(token)) for token in (words[::2] if wide else words)[:4])
        return error(
            "shard-headerless",
            where,
            f"{says}: it looks like bare tokens{' of 4 bytes each' if wide else ''} without a header, the first "
            f"being {first}",
            "use shards of 2-byte tokens with a header" if wide else HEADERLESS,
        )
    return error("shard-magic", where, f"{says}: not a token shard", AGAIN)


def _as_text(content: bytes) -> str | None:
    """The text that the bytes are, or None where they are none; a character cut at the end is left out."""
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content)
    except UnicodeDecodeError:
        return None
    return text if text and all(character.isprintable() or character.isspace() for character in text) else None


def _looks_like_tokens(words: numpy.ndarray) -> bool:
    """Whether uint16 numbers are distributed as token ids are: all small, or a few frequent and most rare or absent.

    The most frequent eighth of the values (at most 1,024) makes up below half of noise or of floating-point numbers and
    above two thirds of text.
    """
    if len(words) < 64:
        return False
    counts = numpy.sort(numpy.bincount(words))[::-1]
    frequent = float(counts[: min(1024, len(words) // 8)].sum()) / len(words)
    return len(counts) <= 2**14 or (len(words) >= 512 and frequent > 0.6)


def _wrong_size(where: object, size: int, count: int) -> Finding | None:
    must = HEADER_BYTES + TOKEN_BYTES * count
    if count > 0 and size == must:
        return None
    if count <= 0:
        return error(
            "shard-size",
            where,
            f"its header says {count:,} tokens, must be at least 1 (never completed?)",
            AGAIN,
        )
    says = f"its header says {count:,} tokens, so it must have {must:,} bytes, but it has {size:,}"
    if size == HEADER_BYTES + 4 * count:
        return error("shard-size", where, f"{says}: its tokens take 4 bytes each", "use shards of 2-byte tokens")
    if size < must:
        return error("shard-cut", where, f"{says}: cut short, {must - size:,} bytes are missing (cut download?)", AGAIN)
    return error("shard-size", where, f"{says}: {size - must:,} bytes too many (two files joined?)", AGAIN)
