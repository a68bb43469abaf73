"""The trained tokenizer: its fixed ids, its normalisation, no unknown text, and the same bytes every time."""

import hashlib
import pathlib
import subprocess
import sys

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.data.tokenizer import train_tokenizer

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = [f"the number {i} comes after {i - 1}, and before {i + 1}" for i in range(300)]
MODEL = train_tokenizer(DOCUMENTS, 320)


@pytest.fixture(scope="module")
def tokenizer() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=MODEL)


def test_special_ids_and_bytes(tokenizer: sentencepiece.SentencePieceProcessor) -> None:
    assert (tokenizer.pad_id(), tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.unk_id()) == (0, 1, 2, 3)
    assert tokenizer.vocab_size() == 320
    assert [token for token in range(320) if tokenizer.is_byte(token)] == list(range(4, 260))


def test_no_space_is_put_in_front_and_white_space_is_joined(tokenizer: sentencepiece.SentencePieceProcessor) -> None:
    assert not tokenizer.id_to_piece(tokenizer.encode("the")[0]).startswith("\u2581")
    assert tokenizer.decode(tokenizer.encode("the \n\n number\t7")) == "the number 7"


@given(st.text(min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_no_text_is_unknown(text: str) -> None:
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=MODEL)
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id() not in ids
    assert tokenizer.decode(ids) == tokenizer.normalize(text).replace("\u2581", " ")


def test_another_process_trains_the_same_bytes() -> None:
    program = (
        "import hashlib; from golfray.data.tokenizer import train_tokenizer\n"
        f"print(hashlib.sha256(train_tokenizer({DOCUMENTS!r}, 320)).hexdigest())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == hashlib.sha256(MODEL).hexdigest()


def test_a_long_document_is_trained_on() -> None:
    long = " ".join(["zyzzyva"] * 2000)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer([*DOCUMENTS, long], 320))
    assert "\u2581zyzzyva" in [tokenizer.id_to_piece(token) for token in range(320)]


@pytest.mark.parametrize("vocab_size", [0, 260, 65_537])
def test_vocabulary_size_out_of_range(vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"vocab_size must be above 260 and at most 65536, got {vocab_size}"):
        train_tokenizer(DOCUMENTS, vocab_size)


def test_too_little_text_for_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="no tokenizer of 5000 pieces can be trained on these documents"):
        train_tokenizer(DOCUMENTS, 5000)
