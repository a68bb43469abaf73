"""Tokenizers whose counted bytes cannot be exact are recognised, each by its reason, and the others by none."""

import io
from typing import Any

import numpy
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.byte_table import build_byte_table
from golfray.data.build import normalised_text
from golfray.data.byte_accounting import counted_bytes, decoded_bytes, encodes_again, find_inexact, has_byte_fallback
from golfray.data.errors import DataError
from golfray.data.model_file import read_model_facts

DOCUMENTS = [f"the number {i} comes after {i - 1},  and before {i + 1}" for i in range(300)]


def train(**options: Any) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    values = {"model_type": "bpe", "vocab_size": 320, "byte_fallback": True, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(DOCUMENTS), model_writer=model, **values)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


USUAL = train(add_dummy_prefix=False)
EXACT = {
    "usual": USUAL,
    "space in front": train(),
    "identity": train(normalization_rule_name="identity"),
    "identity, all spaces kept": train(normalization_rule_name="identity", remove_extra_whitespaces=False),
    "unigram": train(model_type="unigram"),
    "other special ids": train(pad_id=-1, unk_id=3, bos_id=0, eos_id=1),
}


@pytest.mark.parametrize("name", EXACT)
@given(text=st.one_of(st.text(st.characters(codec="utf-8"), max_size=30), st.text("ab 1,\n", max_size=30)))
@settings(max_examples=40)
def test_exact_tokenizers_count_the_bytes_of_the_text(name: str, text: str) -> None:
    tokenizer = EXACT[name]
    table = build_byte_table(tokenizer, 400)
    tokens = numpy.array(tokenizer.encode(text), dtype=numpy.int64)
    facts = read_model_facts(tokenizer.serialized_model_proto())
    size = len(normalised_text(tokenizer, facts, text).encode())
    assert find_inexact(tokenizer) == []
    assert decoded_bytes(tokenizer, table, tokens) == size
    assert counted_bytes(table, tokens, tokenizer.bos_id()) == size
    assert encodes_again(tokenizer, tokens)


INEXACT = {
    "tokenizer-unknown-bytes": (train(byte_fallback=False, vocab_size=80), "it has no byte fallback", [0]),
    "tokenizer-user-defined": (
        train(user_defined_symbols=["\ue001", "<cap>"]),
        "it has 2 user-defined symbol(s) ('\\ue001', '<cap>')",
        [3, 4],
    ),
    "tokenizer-first-space": (
        train(add_dummy_prefix=False, remove_extra_whitespaces=False),
        "it keeps a document's first space, which is not counted behind BOS",
        [],
    ),
}


@pytest.mark.parametrize("code", INEXACT)
def test_inexact_tokenizers_are_named(code: str) -> None:
    tokenizer, why, tokens = INEXACT[code]
    (found,) = find_inexact(tokenizer)
    assert found.code == code
    assert found.why.startswith(why)
    assert found.tokens.tolist() == tokens
    assert has_byte_fallback(tokenizer) is (code != "tokenizer-unknown-bytes")


def test_spaces_behind_and_inside_pieces_are_named() -> None:
    for options in ({"treat_whitespace_as_suffix": True}, {"split_by_whitespace": False}):
        tokenizer = train(**options)
        table = build_byte_table(tokenizer, 320)
        (found,) = find_inexact(tokenizer)
        assert found.code == "tokenizer-inner-space"
        assert all("\u2581" in tokenizer.id_to_piece(token)[1:] for token in found.tokens.tolist())
        tokens = numpy.array(tokenizer.encode(DOCUMENTS[0]))
        assert numpy.isin(tokens, found.tokens).any()
        assert counted_bytes(table, tokens, 1) != decoded_bytes(tokenizer, table, tokens)


def test_unknown_characters_count_nothing_and_are_not_decoded() -> None:
    tokenizer = INEXACT["tokenizer-unknown-bytes"][0]
    table = build_byte_table(tokenizer, 80)
    tokens = numpy.array(tokenizer.encode("the Ωμ number 语 1"))
    assert (tokens == tokenizer.unk_id()).sum() == 2
    # "the" and " ", then "number" without its space, which stands behind an unknown token, " ", and "1" without one
    assert counted_bytes(table, tokens, 1) == decoded_bytes(tokenizer, table, tokens) == 4 + 6 + 1 + 1


def test_facts_of_a_model() -> None:
    facts = read_model_facts(USUAL.serialized_model_proto())
    assert len(facts.piece_types) == 320
    assert [facts.piece_types.count(kind) for kind in (1, 2, 3, 6)] == [61, 1, 2, 256]
    assert (facts.normalizer, facts.add_dummy_prefix, facts.remove_extra_whitespaces) == ("nmt_nfkc", False, True)
    assert read_model_facts(EXACT["space in front"].serialized_model_proto()).add_dummy_prefix


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_half_a_model_is_no_model(cut: int) -> None:
    model = USUAL.serialized_model_proto()
    with pytest.raises(DataError, match="not a SentencePiece model"):
        read_model_facts(model[:-cut])
