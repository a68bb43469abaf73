"""Shards written here are read back by core's reader, however documents and boundaries fall."""

import pathlib
import tempfile

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.shards import list_shards, map_shard
from golfray.data.token_files import TokenFiles, read_chunks, write_shards

DOCUMENTS = st.lists(st.lists(st.integers(0, 65_535), min_size=1, max_size=30), min_size=1, max_size=12)


@given(documents=DOCUMENTS, shard_tokens=st.integers(1, 50))
@settings(max_examples=50)
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


def test_tokens_from_the_midst_of_several_files(tmp_path: pathlib.Path) -> None:
    tokens = list(range(300, 1300))
    files = TokenFiles(write_shards(tmp_path, "train", [tokens], 7))
    assert files.total_tokens == 1000
    for start, count in ((0, 1000), (6, 2), (7, 7), (13, 30), (993, 7), (999, 1), (5, 0)):
        assert files.read(start, count).tolist() == tokens[start : start + count]
