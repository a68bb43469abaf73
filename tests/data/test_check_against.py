"""Documents of other shards or texts that are found in the training shards."""

import json
import pathlib
from typing import Any

import pytest
import sentencepiece

from golfray.core.shards import list_shards
from golfray.data.corpus import Corpus, demo_corpus
from golfray.data.errors import DataError
from golfray.data.token_files import write_shards
from golfray.data.tokenizer import train_tokenizer
from tests.data.checking import VAL, check, documents_of, found, only, rewrite
from tests.data.decoding import decode_documents


@pytest.fixture
def other_shards(folder: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Validation shards in which two training documents are, and no manifest."""
    other = tmp_path / "other"
    other.mkdir()
    train = documents_of(folder, "train")
    write_shards(other, "val", [[1, 300, 301], train[7], train[180], [1, 302]], 500)
    return other


def texts_of(folder: pathlib.Path) -> list[str]:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tiny_320_bpe.model"))
    return decode_documents(list_shards(folder, "train"), tokenizer)


def judged(folder: pathlib.Path, against: pathlib.Path, **options: Any) -> str:
    result = check(folder, against=against, **options)
    assert found(result) == [("overlap-against", folder.name)]
    assert result.facts["against"]["in_training"] == 2
    return only(result).what


def test_against_shards(folder: pathlib.Path, other_shards: pathlib.Path) -> None:
    what = judged(folder, other_shards)
    assert what.startswith(f"2 of 4 documents of {other_shards} are training documents too, the first at token ")
    write_shards(other_shards, "test", documents_of(other_shards, "val"), 10**6)
    assert "2 of 4 documents" in judged(folder, other_shards / "fineweb_test_000000.bin")


def test_against_text(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = texts_of(folder)
    path = tmp_path / "val.jsonl"
    lines = [text[7].replace(" ", "\n "), "never seen", text[180]]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    assert "2 of 3 documents" in judged(folder, path)


def test_against_text_where_documents_end_in_eos(bare: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text, tokenizer = texts_of(bare), bare / "tiny_320_bpe.model"
    for split in ("train", "val"):
        rewrite(bare, split, [[*document, 2] for document in documents_of(bare, split)])
    path = tmp_path / "val.jsonl"
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in (text[7], text[8])))
    result = check(bare, tokenizer=tokenizer, against=path)
    assert found(result) == [("overlap-against", bare.name)]
    assert result.facts["sample"]["again"] == result.facts["sample"]["comparable"] > 0


def test_against_shards_of_another_tokenizer(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    model = tmp_path / "other.model"
    text = texts_of(folder)
    model.write_bytes(train_tokenizer(text, 300))
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(model))
    write_shards(other, "val", [[1, *tokenizer.encode(line)] for line in (text[7], "never seen", text[180])], 10**6)
    assert "2 of 3 documents" in judged(folder, other, against_tokenizer=model)
    assert check(folder, against=other).findings == [], "read as the same tokenizer's, none is the same"


def test_a_tokenizer_for_text_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path, tiny_corpus: Corpus) -> None:
    """It would have been ignored: the text is encoded as the shards are."""
    text = tmp_path / "other.txt"
    text.write_text("some words")
    with pytest.raises(DataError, match=r"--against-tokenizer .*\.model: is about shards, .*other\.txt is a"):
        check(folder, against=text, against_tokenizer=tiny_corpus.tokenizer)


def test_against_nothing(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for path, message in (
        (tmp_path / "absent.bin", r"absent\.bin: no such file"),
        (tmp_path, "no fineweb_val_\\*.bin here to compare with"),
        (tmp_path / "absent.jsonl", r"absent\.jsonl: no such file"),
        (
            demo_corpus().folder / VAL,
            r"fineweb_val_000000\.bin: token 10\d\d at position \d+, but the tokenizer has 320 pieces; give --against",
        ),
    ):
        with pytest.raises(DataError, match=message):
            check(folder, against=path)
