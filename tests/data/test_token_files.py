"""Shards written here are read back by core's reader, however documents and boundaries fall."""

import pathlib
import tempfile

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.byte_table import ByteTable
from golfray.core.shards import list_shards, map_shard
from golfray.data import token_files
from golfray.data.errors import DataError
from golfray.data.token_files import TokenFiles, count_scored_bytes, read_chunks, write_shards

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=30), min_size=1, max_size=12)


@given(documents=DOCUMENTS, shard_tokens=st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_shards_read_back_as_the_documents_end_to_end(documents: list[list[int]], shard_tokens: int) -> None:
    flat = [token for document in documents for token in document]
    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(pathlib.Path(folder), "train", documents, shard_tokens)
        assert paths == list_shards(pathlib.Path(folder), "train")
        shards = [map_shard(path) for path in paths]
        assert [len(shard) for shard in shards[:-1]] == [shard_tokens] * (len(shards) - 1)
        assert 0 < len(shards[-1]) <= shard_tokens
        assert numpy.concatenate(shards).tolist() == flat
        assert numpy.concatenate(list(read_chunks(paths))).tolist() == flat


def test_header_and_bytes_of_a_shard(tmp_path: pathlib.Path) -> None:
    (path,) = write_shards(tmp_path, "val", [[1, 258], [1, 65_535]], 100)
    content = path.read_bytes()
    assert path.name == "fineweb_val_000000.bin"
    assert numpy.frombuffer(content[:1024], "<i4").tolist() == [20240520, 1, 4] + [0] * 253
    assert content[1024:] == bytes([1, 0, 2, 1, 1, 0, 255, 255])


def test_a_token_beyond_uint16_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OverflowError):
        write_shards(tmp_path, "train", [[1, 65_536]], 10)


# pad 0, bos 1: boundaries. 2: "ab" in two bytes. 3: the same with a space in front. 4: a byte.
TABLE = ByteTable(
    base_bytes=numpy.array([0, 0, 2, 2, 1]),
    has_space=numpy.array([False, False, False, True, False]),
    is_boundary=numpy.array([True, True, False, False, False]),
)


@pytest.mark.parametrize("shard_tokens", [1, 2, 3, 100])
@pytest.mark.parametrize("chunk_tokens", [1, 2, 1000])
def test_scored_bytes_do_not_depend_on_where_the_cuts_are(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, shard_tokens: int, chunk_tokens: int
) -> None:
    monkeypatch.setattr(token_files, "CHUNK_TOKENS", chunk_tokens)
    paths = write_shards(tmp_path, "val", [[1, 3, 3, 4], [1, 2, 3]], shard_tokens)
    # "ab", " ab", one byte; then "ab", " ab": the space right after BOS does not count, nor does the first token
    assert count_scored_bytes(paths, TABLE) == 2 + 3 + 1 + 2 + 3


def test_a_token_the_tokenizer_lacks_is_refused(tmp_path: pathlib.Path) -> None:
    paths = write_shards(tmp_path, "val", [[1, 2, 5]], 10)
    with pytest.raises(DataError, match=r"token 5 found, but the tokenizer has 5 pieces; data\.tokenizer must be"):
        count_scored_bytes(paths, TABLE)


def test_tokens_from_the_midst_of_several_files(tmp_path: pathlib.Path) -> None:
    tokens = list(range(300, 1300))
    files = TokenFiles(write_shards(tmp_path, "train", [tokens], 7))
    assert files.total_tokens == 1000
    for start, count in ((0, 1000), (6, 2), (7, 7), (13, 30), (993, 7), (999, 1), (5, 0)):
        assert files.read(start, count).tolist() == tokens[start : start + count]
