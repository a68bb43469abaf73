"""Reference points against numbers worked out by hand and against the definition."""

import math
import pathlib

import numpy
import pytest
import sentencepiece

from golfray.core.byte_table import build_byte_table
from golfray.core.shards import list_shards
from golfray.data import reference_points
from golfray.data.corpus import Corpus
from golfray.data.reference_points import (
    compressed_bits_per_byte,
    measure_reference_points,
    uniform_bits_per_byte,
    unigram_bits_per_byte,
)
from golfray.data.split_tally import tally_split
from tests.data.decoding import decode_documents


def test_uniform_of_a_known_corpus() -> None:
    # 200,416 tokens and 489,921 bytes of FineWeb under the published 1,024-piece tokenizer: 4.091 was measured there
    assert uniform_bits_per_byte(1024, 200_416, 489_921) == pytest.approx(4.0907616, abs=1e-6)


def test_unigram_by_hand() -> None:
    train, val = numpy.array([5, 2, 0]), numpy.array([1, 1, 1])
    expected = -(math.log2(6 / 10) + math.log2(3 / 10) + math.log2(1 / 10)) / 8
    assert unigram_bits_per_byte(train, val, 8) == pytest.approx(expected)


def test_unigram_without_training_counts_is_uniform() -> None:
    assert unigram_bits_per_byte(numpy.zeros(16, int), numpy.full(16, 3), 48) == pytest.approx(4.0)


def test_compressors_divide_by_scored_bytes() -> None:
    text = b"the same again " * 100
    once, twice = compressed_bits_per_byte(text, 1500), compressed_bits_per_byte(text, 750)
    assert set(once) == {"zlib -9", "xz -9e"}
    assert all(twice[name] == pytest.approx(2 * once[name]) for name in once)
    assert all(0 < value < 1 for value in once.values())


def points_of(corpus: Corpus, tokenizer: sentencepiece.SentencePieceProcessor) -> dict[str, float]:
    table = build_byte_table(tokenizer, corpus.vocab_size)
    paths = {split: list_shards(corpus.folder, split) for split in ("train", "val")}
    train, val = (tally_split(paths[split], table, corpus.vocab_size) for split in ("train", "val"))
    assert val.scored_bytes == corpus.val_bytes
    return measure_reference_points(train, val, paths["val"], tokenizer)


def test_tiny_corpus(tiny_corpus: Corpus) -> None:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tiny_corpus.tokenizer))
    points = points_of(tiny_corpus, tokenizer)
    assert points == tiny_corpus.reference_points
    assert list(points) == ["uniform", "unigram", "zlib -9", "xz -9e"]
    assert points["unigram"] < points["uniform"]


def test_decoded_documents_are_what_is_scored(tiny_corpus: Corpus) -> None:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tiny_corpus.tokenizer))
    documents = decode_documents(list_shards(tiny_corpus.folder, "val"), tokenizer)
    assert len(documents) == 18
    assert sum(len(document.encode()) for document in documents) == tiny_corpus.val_bytes
    assert all(pathlib.Path(tiny_corpus.folder, name).is_file() for name in ("manifest.json", "tiny_320_bpe.model"))


def test_of_long_text_the_compressors_get_the_first_documents(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tiny_corpus.tokenizer))
    val = list_shards(tiny_corpus.folder, "val")
    documents = [document.encode() for document in decode_documents(val, tokenizer)]
    monkeypatch.setattr(reference_points, "MAX_COMPRESSED_BYTES", len(documents[0]) + 1)
    points = points_of(tiny_corpus, tokenizer)
    assert list(points) == ["uniform", "unigram", "zlib -9 of 0 MB", "xz -9e of 0 MB"]
    first = b"\n".join(documents[:2])
    expected = compressed_bits_per_byte(first, len(first))
    assert [points["zlib -9 of 0 MB"], points["xz -9e of 0 MB"]] == list(expected.values())
    assert points["unigram"] == tiny_corpus.reference_points["unigram"]
    monkeypatch.setattr(reference_points, "MAX_COMPRESSED_BYTES", sum(map(len, documents)))
    assert points_of(tiny_corpus, tokenizer) == tiny_corpus.reference_points
