"""The trained tokenizer: its fixed ids, its normalisation, no unknown text, and the same bytes every time."""

import hashlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.data import tokenizer as tokenizer_module
from golfray.data.errors import DataError
from golfray.data.tokenizer import load_tokenizer, train_tokenizer

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
@settings(max_examples=100)
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


def test_characters_that_need_more_than_the_vocabulary() -> None:
    many = "".join(chr(0x4E00 + number) for number in range(3000))
    with pytest.raises(DataError, match="need at least 3257 for their characters; choose a larger vocabulary"):
        train_tokenizer([many], 300)


def test_a_vocabulary_as_large_as_was_said_can_be_trained() -> None:
    with pytest.raises(DataError) as caught:
        train_tokenizer(DOCUMENTS, 5000)
    most = re.search(r"yield at most (\d+); choose a vocabulary of \1 or fewer", str(caught.value))
    assert most is not None
    assert train_tokenizer(DOCUMENTS, int(most[1]))


def test_a_character_that_sentencepiece_keeps_for_itself_hides_no_document() -> None:
    document = "\u2585 ".join(["zyzzyva"] * 2000)
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=train_tokenizer([*DOCUMENTS, document], 320))
    assert "\u2581zyzzyva" in [tokenizer.id_to_piece(token) for token in range(320)]


def test_no_more_text_is_read_than_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MAX_TRAINING_BYTES", sum(len(text) for text in DOCUMENTS) - 5)
    rest = iter([*DOCUMENTS, "never read"])
    assert train_tokenizer(rest, 320) == MODEL
    assert next(rest) == "never read"


def test_an_interruption_while_documents_are_read_stays_one() -> None:
    def interrupted() -> Iterator[str]:
        yield from DOCUMENTS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(interrupted(), 320)


@pytest.mark.parametrize("content", [b"", b"{}", MODEL[:5000], b"\0" * 100])
def test_a_file_that_is_no_tokenizer(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "x.model"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.model: "):
        load_tokenizer(path)


def _cut(model: bytes) -> bytes:
    return model[: len(model) // 2]


def _with_damaged_byte_piece(model: bytes) -> bytes:
    return model.replace(b"<0x55>", b"<\xe7x55>")


@pytest.mark.parametrize("damage", [lambda model: b"", lambda model: b"hello", _cut, _with_damaged_byte_piece])
def test_a_damaged_model_is_refused_in_one_line_and_nothing_is_printed_beside_it(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "damaged.model"
    path.write_bytes(damage(MODEL))
    with pytest.raises(DataError, match="not a SentencePiece model") as caught:
        load_tokenizer(path)
    assert str(caught.value).startswith(f"{path}: not a SentencePiece model: ")
    assert not any(word in str(caught.value) for word in ("src/", "INTERNAL", "\n"))
    assert capfd.readouterr() == ("", "")


def test_no_text_at_all() -> None:
    with pytest.raises(DataError, match="there is no text to train a tokenizer on"):
        train_tokenizer(["", ""], 300)
