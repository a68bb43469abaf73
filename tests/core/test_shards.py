"""Shards on disk, the endless stream over them, validation tokens and bytes."""

import itertools
import pathlib

import numpy
import pytest
import sentencepiece
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.byte_table import build_byte_table, load_byte_table
from golfray.core.score import score_model
from golfray.core.settings import BatchSettings
from golfray.core.shards import TokenStream, list_shards, load_validation_tokens, map_shard, validation_range


def write_shard(path: pathlib.Path, tokens: numpy.ndarray, magic: int = 20240520, version: int = 1) -> pathlib.Path:
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
    return path


def test_map_shard_reads_what_was_written(tmp_path: pathlib.Path) -> None:
    tokens = numpy.array([0, 1, 65535, 7])
    shard = map_shard(write_shard(tmp_path / "a.bin", tokens))
    assert shard.tolist() == tokens.tolist()
    assert shard.dtype == numpy.uint16
    with pytest.raises(ValueError, match="read-only"):
        shard[0] = 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:1000], "too short for a shard header"),
        (lambda content: b"", "too short for a shard header"),
        (lambda content: content[:-1], r"must have 1064 bytes, but it has 1063"),
        (lambda content: content[:1024], r"must have 1064 bytes, but it has 1024"),
        (lambda content: content + b"\0\0", r"must have 1064 bytes, but it has 1066"),
        (lambda content: b"\1" + content[1:], "magic"),
        (lambda content: content[:4] + b"\2" + content[5:], "version 2"),
        (lambda content: content[:8] + bytes(4) + content[12:], "header says 0 tokens"),
        (lambda content: content[:8] + b"\xff" * 4 + content[12:], "header says -1 tokens"),
    ],
)
def test_bad_shards_name_the_file(spoil, message: str, tmp_path: pathlib.Path) -> None:
    path = write_shard(tmp_path / "fineweb_train_000000.bin", numpy.arange(20))
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        map_shard(path)
    assert str(path) in str(caught.value)


def test_folders_without_shards(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no fineweb_val"):
        list_shards(tmp_path, "val")


@settings(max_examples=60)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(0, 200), st.integers(1, 12), st.integers(1, 4))
def test_stream_is_the_shards_end_to_end_for_ever(tmp_path_factory, lengths, number: int, seq_len: int, rows) -> None:
    folder = tmp_path_factory.mktemp("stream")
    everything = numpy.arange(sum(lengths)) * 7 % 65536
    pieces = numpy.split(everything, numpy.cumsum(lengths)[:-1])
    paths = [write_shard(folder / f"fineweb_train_{index:06d}.bin", piece) for index, piece in enumerate(pieces)]
    stream = TokenStream(list_shards(folder, "train"))
    assert list_shards(folder, "train") == paths
    tokens = rows * seq_len
    wanted = everything[(number * (tokens + 1) + numpy.arange(tokens + 1)) % len(everything)]
    inputs, targets = stream.slice_batch(number, tokens, seq_len)
    assert inputs.shape == targets.shape == (rows, seq_len)
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.flatten().tolist() == wanted[:-1].tolist()
    assert targets.flatten().tolist() == wanted[1:].tolist()
    # A second reader that asked for other slices before gets the same.
    other = TokenStream(paths)
    other.slice_batch(number + 3, tokens, seq_len)
    assert torch.equal(other.slice_batch(number, tokens, seq_len)[0], inputs)


@given(st.integers(0, 5000), st.integers(1, 16))
def test_validation_ranges_cover_everything_once(total: int, world_size: int) -> None:
    ranges = [validation_range(total, rank, world_size) for rank in range(world_size)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == total
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    sizes = [last - first for first, last in ranges]
    assert max(sizes) - min(sizes) <= 1


def test_validation_tokens_are_whole_sequences(tmp_path: pathlib.Path) -> None:
    write_shard(tmp_path / "fineweb_val_000000.bin", numpy.arange(10))
    write_shard(tmp_path / "fineweb_val_000001.bin", numpy.arange(10, 23))
    tokens = load_validation_tokens(list_shards(tmp_path, "val"), 5)
    assert tokens.tolist() == list(range(21))
    assert len(load_validation_tokens(list_shards(tmp_path, "val"), 22)) == 23
    with pytest.raises(ValueError, match=r"23 validation tokens are too few .* 23; lower batch.seq_len"):
        load_validation_tokens(list_shards(tmp_path, "val"), 23)


def test_bytes_of_real_text_are_its_utf8_length(tiny_corpus) -> None:
    sp = sentencepiece.SentencePieceProcessor(model_file=str(tiny_corpus.tokenizer))
    table = load_byte_table(str(tiny_corpus.tokenizer), tiny_corpus.vocab_size)
    for text in ("Kalo mi naïve Ωμέγα 語🙂 ter.", "x", "an an an", "§ 100 % of it", "Ω"):
        ids = numpy.array([sp.bos_id(), *sp.encode(text)])
        assert table.count(ids[:-1], ids[1:]) == len(text.encode("utf-8")), text
    assert table.is_boundary[[sp.bos_id(), sp.eos_id(), sp.unk_id(), sp.pad_id()]].all()
    assert table.base_bytes[[sp.bos_id(), sp.eos_id(), sp.unk_id(), sp.pad_id()]].sum() == 0


def test_vocabulary_may_be_larger_than_the_tokenizer_not_smaller(tiny_corpus) -> None:
    sp = sentencepiece.SentencePieceProcessor(model_file=str(tiny_corpus.tokenizer))
    table = build_byte_table(sp, tiny_corpus.vocab_size + 8)
    assert table.base_bytes.shape == (tiny_corpus.vocab_size + 8,)
    assert table.is_boundary[-8:].all()
    assert not table.base_bytes[-8:].any()
    with pytest.raises(ValueError, match=f"{tiny_corpus.vocab_size} pieces"):
        build_byte_table(sp, tiny_corpus.vocab_size - 1)


@pytest.mark.parametrize("val_tokens", [64, 1000, 1 << 20])
def test_uniform_model_scores_its_known_bits(tiny_corpus, alone, val_tokens: int) -> None:
    tokens = load_validation_tokens(list_shards(tiny_corpus.folder, "val"), 64)
    table = load_byte_table(str(tiny_corpus.tokenizer), tiny_corpus.vocab_size)
    nats = float(numpy.log(tiny_corpus.vocab_size))
    batch = BatchSettings(tokens=64, seq_len=64, slices=1, val_tokens=val_tokens)
    seen: list[int] = []

    def uniform(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        assert torch.equal(inputs.flatten()[1:], targets.flatten()[:-1])
        seen.append(inputs.numel())
        return torch.tensor(nats, dtype=torch.float64)

    score = score_model(uniform, tokens, table, batch, alone)
    assert sum(seen) == score.tokens == len(tokens) - 1
    assert max(seen) <= max(val_tokens, 64)
    assert score.loss == pytest.approx(nats)
    assert score.bytes == table.count(tokens[:-1].astype(int), tokens[1:].astype(int))
    assert score.bits_per_byte == pytest.approx(nats * score.tokens / score.bytes / numpy.log(2))
