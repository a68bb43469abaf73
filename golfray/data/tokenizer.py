"""The tokenizer of a corpus: SentencePiece BPE trained as the published FineWeb tokenizers are, or a given model."""

import io
import pathlib
import re
from collections.abc import Iterable

import sentencepiece

from golfray.data.errors import DataError
from golfray.data.model_file import read_model_facts
from golfray.data.shard_layout import MAX_VOCAB_SIZE

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
NORMALIZER = "nmt_nfkc"
# Training holds its text in memory several times over; more than this changes the pieces of a vocabulary little.
MAX_TRAINING_BYTES = 2**26
# SentencePiece leaves longer documents out without a word; none is that long.
MAX_SENTENCE_BYTES = 2**30
# SentencePiece keeps this character for itself while it trains and leaves out every document that holds it.
RESERVED_CHARACTER = "\u2585"


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> bytes:
    """Train a byte-pair encoding of ``vocab_size`` pieces and return the bytes of the model file.

    Pieces 0 to 3 are pad, bos, eos and unk, the next 256 the bytes: no text is ever unknown. Text is normalised by
    nmt_nfkc (every run of white space becomes one space) and gets no space in front. The same documents in the same
    order give the same bytes with one version of sentencepiece: the number of threads and no path are part of the file.
    Documents are taken until they are ``MAX_TRAINING_BYTES`` of UTF-8 together, the rest is not read.

    Raises ``DataError`` where the vocabulary does not fit uint16 tokens or the documents are too few for it.
    """
    check_vocab_size(vocab_size)
    # Read before training begins: SentencePiece would turn an error or an interruption in between into one of its own.
    taken, total = _take(documents)
    if total == 0:
        raise DataError("there is no text to train a tokenizer on")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(taken),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            character_coverage=0.999,
            normalization_rule_name=NORMALIZER,
            add_dummy_prefix=False,
            max_sentence_length=MAX_SENTENCE_BYTES,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DataError(
            f"no tokenizer of {vocab_size} pieces can be trained on these documents: {len(taken):,} documents of "
            f"{total:,} bytes {_why(str(error))}"
        ) from error
    return model.getvalue()


def check_vocab_size(vocab_size: int, name: str = "vocab_size") -> None:
    """Raise ``DataError`` where no tokenizer can have so many pieces: the special ones, the bytes, and one more.

    ``name`` is what the person who gave the number knows it by.
    """
    if not UNK_ID + 257 < vocab_size <= MAX_VOCAB_SIZE:
        raise DataError(f"{name} must be above {UNK_ID + 257} and at most {MAX_VOCAB_SIZE}, got {vocab_size}")


def load_tokenizer(path: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model of a file. Raises ``DataError`` where there is no file or it is no model."""
    if not path.is_file():
        raise DataError("no such file", where=path, remedy="a tokenizer is a SentencePiece model")
    model = path.read_bytes()
    try:
        # Before SentencePiece, which prints lines of its own about a model without pieces.
        pieces = len(read_model_facts(model).piece_types)
        if pieces == 0:
            raise DataError("not a SentencePiece model: it has no pieces")
        if pieces > MAX_VOCAB_SIZE:
            raise DataError(f"{pieces} pieces, must be at most {MAX_VOCAB_SIZE}: tokens are uint16")
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except DataError as error:
        raise DataError(error.what, where=path) from error
    except (RuntimeError, UnicodeDecodeError) as error:  # the latter where its message quotes a damaged piece
        raise DataError("not a SentencePiece model: its parts do not fit together", where=path) from error


def _take(documents: Iterable[str]) -> tuple[list[str], int]:
    """Documents fit to train on, in order, until they are enough; and their bytes."""
    taken: list[str] = []
    total = 0
    for document in documents:
        taken.append(document.replace(RESERVED_CHARACTER, " "))
        total += len(document.encode("utf-8"))
        if total >= MAX_TRAINING_BYTES:
            break
    return taken, total


def _why(said: str) -> str:
    """SentencePiece's reason in a person's terms."""
    if most := re.search(r"set it to a value <= (\d+)", said):
        return f"yield at most {most[1]}; choose a vocabulary of {most[1]} or fewer, or give more text"
    if least := re.search(r"required_chars\D*(\d+) vs (\d+)", said):
        return f"need at least {least[2]} for their characters; choose a larger vocabulary"
    return f"are not enough or not fit: {said}"
