"""What is in a shard's place is named by what it is."""

import gzip
import lzma
import pathlib

import numpy
import pytest

from golfray.core.shards import map_shard
from golfray.data.errors import DataError
from golfray.data.shard_header import diagnose_shard, diagnose_start, open_shard, sample_largest_token
from golfray.data.token_files import write_shards

GENERATOR = numpy.random.default_rng(0)
# Ids as a text has them: low ones often, high ones seldom.
TOKENS = [int(token) for token in GENERATOR.geometric(0.02, 3000)]
HEADER = numpy.array([20240520, 1, 3000, *[0] * 253], dtype="<i4")


def header(**fields: int) -> bytes:
    names = ("magic", "version", "count")
    return numpy.array(
        [fields.get(name, HEADER[at]) for at, name in enumerate(names)] + [0] * 253, dtype="<i4"
    ).tobytes()


BODY = numpy.array(TOKENS, dtype="<u2").tobytes()
DAMAGED = {
    "empty": (b"", "shard-cut", "the file is empty"),
    "header cut": (header()[:700], "shard-cut", "700 bytes is too short for the header of 1024 bytes (cut download?)"),
    "cut": (
        header() + BODY[:4500],
        "shard-cut",
        "its header says 3,000 tokens, so it must have 7,024 bytes, but it has 5,524: cut short, 1,500 bytes are",
    ),
    "cut by one byte": (
        header() + BODY[:-1],
        "shard-cut",
        "it must have 7,024 bytes, but it has 7,023: cut short, 1 bytes are",
    ),
    "too long": (header() + BODY + b"\0\0", "shard-size", "7,026: 2 bytes too many (two files joined?)"),
    "4-byte tokens": (header() + BODY * 2, "shard-size", "its tokens take 4 bytes each"),
    "count never written": (header(count=0) + BODY, "shard-size", "its header says 0 tokens, must be at least 1"),
    "negative count": (header(count=-1) + BODY, "shard-size", "its header says -1 tokens"),
    "version": (header(version=7) + BODY, "shard-version", "shard version 7, must be 1"),
    "magic": (header(magic=20240519) + BODY, "shard-magic", "magic 20240519, must be 20240520, in what is a header"),
    "big-endian": (numpy.frombuffer(header() + BODY, "<i4").byteswap().tobytes(), "shard-magic", "big-endian"),
    "llm.c, wide": (header(magic=20240801, version=7) + BODY * 2, "shard-magic", "llm.c's shard of 4-byte tokens"),
    "headerless": (
        BODY,
        "shard-headerless",
        f"it looks like bare tokens without a header, the first being {', '.join(map(str, TOKENS[:4]))}",
    ),
    "headerless, large vocabulary": (
        (numpy.array(TOKENS, dtype="<u2") * 300).tobytes(),
        "shard-headerless",
        "bare tokens without a header",
    ),
    "headerless, wide": (numpy.array(TOKENS, dtype="<u4").tobytes(), "shard-headerless", "bare tokens of 4 bytes each"),
    "noise": (GENERATOR.integers(0, 65_536, 3000).astype("<u2").tobytes(), "shard-magic", "not a token shard"),
    "floats": (GENERATOR.normal(size=3000).astype("<f4").tobytes(), "shard-magic", "not a token shard"),
    "gzip": (gzip.compress(header() + BODY), "shard-magic", "this is a gzip file, no token shard"),
    "xz": (lzma.compress(header() + BODY), "shard-magic", "this is a xz file, no token shard"),
    "numpy": (b"\x93NUMPY\x01\x00" + BODY, "shard-magic", "this is a NumPy array file"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "shard-magic", "this is a Git LFS pointer"),
    "web page": (b"<!DOCTYPE html>\n<title>Sign in</title>", "shard-magic", "this is a web page or an error message"),
    "text": ("The quick brown fôx ".encode() * 99, "shard-magic", "this is text: it begins 'The quick brown fôx "),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged(tmp_path: pathlib.Path, name: str) -> None:
    content, code, message = DAMAGED[name]
    path = tmp_path / "fineweb_val_000000.bin"
    path.write_bytes(content)
    finding = diagnose_shard(path)
    assert finding is not None
    assert (finding.severity, finding.code, finding.where) == ("error", code, str(path))
    assert message in finding.what
    with pytest.raises(DataError) as caught:
        open_shard(path)
    assert str(caught.value) == finding.line()
    with pytest.raises(ValueError, match="fineweb_val_000000"):
        map_shard(path)


def test_a_whole_shard(tmp_path: pathlib.Path) -> None:
    (path,) = write_shards(tmp_path, "val", [TOKENS], 5000)
    assert path.read_bytes() == header() + BODY
    assert diagnose_shard(path) is None
    assert diagnose_start("here", header(), 7024) is None
    assert open_shard(path).tolist() == TOKENS


@pytest.mark.parametrize("position", [0, 65_535, 150_000, 299_999])
def test_the_sample_sees_both_ends_and_the_middle(tmp_path: pathlib.Path, position: int) -> None:
    tokens = numpy.full(300_000, 7, dtype=numpy.uint16)
    tokens[position] = 900
    assert sample_largest_token(tokens) == 900
    assert sample_largest_token(tokens[:3]) in (7, 900)


def test_the_sample_is_a_sample() -> None:
    tokens = numpy.full(300_000, 7, dtype=numpy.uint16)
    tokens[80_000] = 900
    assert sample_largest_token(tokens) == 7
