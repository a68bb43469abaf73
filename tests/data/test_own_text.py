"""A corpus of one's own files: the split, what is the same twice, given validation and tokenizers, and the refusals."""

import gzip
import io
import json
import lzma
import pathlib
import tempfile
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.shards import list_shards
from golfray.data.check import CheckRequest, check_corpus
from golfray.data.corpus import open_corpus
from golfray.data.errors import CannotWriteError, DataError
from golfray.data.manifest import Manifest
from golfray.data.own_text import OwnText, build_own_text, name_of
from golfray.data.text_files import TextFormat
from golfray.data.tokenizer import train_tokenizer
from tests.data.decoding import decode_documents

DOCUMENTS = [f"document {i}: " + " ".join(str(i * k % 97) for k in range(20)) + " naïve 語" for i in range(40)]


@pytest.fixture
def text(tmp_path: pathlib.Path) -> pathlib.Path:
    """Forty documents in a file of JSON lines."""
    return write_lines(tmp_path / "text.jsonl", DOCUMENTS)


def write_lines(path: pathlib.Path, documents: list[str]) -> pathlib.Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def build(folder: pathlib.Path, *files: pathlib.Path, **values: Any) -> tuple[Manifest, list[str]]:
    """Build with a vocabulary that these texts are enough for; the manifest and what was said."""
    said: list[str] = []
    if "tokenizer" not in values:
        values.setdefault("vocab_size", 300)
    manifest = build_own_text(OwnText(name="own", files=files, **values), folder, said.append)
    return manifest, said


def decoded(folder: pathlib.Path, split: str) -> list[str]:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(open_corpus(folder).tokenizer))
    return decode_documents(list_shards(folder, split), tokenizer)


def test_two_files_of_ones_own(tmp_path: pathlib.Path) -> None:
    one, two = tmp_path / "one.txt.gz", tmp_path / "two.jsonl.xz"
    one.write_bytes(gzip.compress("\n\n".join(DOCUMENTS[:25]).encode()))
    two.write_bytes(lzma.compress("".join(json.dumps({"body": text}) + "\n" for text in DOCUMENTS[25:]).encode()))
    folder = tmp_path / "new" / "corpus"
    manifest, said = build(folder, one, two, form=TextFormat("body", ""), val_documents=5)
    corpus = open_corpus(folder)
    assert (corpus.name, corpus.vocab_size, corpus.contaminated, corpus.is_demo) == ("own", 300, False, False)
    assert corpus.warning == ""
    assert len(decoded(folder, "val")) == 5
    assert sorted(decoded(folder, "val") + decoded(folder, "train")) == sorted(DOCUMENTS)
    assert manifest.train.text_bytes + manifest.val.text_bytes == sum(len(text.encode()) for text in DOCUMENTS)
    assert [entry["file"] for entry in manifest.recipe["files"]] == ["one.txt.gz", "two.jsonl.xz"]
    assert said[0].startswith("read 40 documents from 2 files: ")
    assert check_corpus(CheckRequest(folder)).findings == []


def test_the_seed_decides(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(tmp_path / name, text, seed=seed, shard_tokens=500)
    files = {name: {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc"}
    assert files["a"] == files["b"]
    assert files["a"] != files["c"]
    assert len(files["a"]) > 4
    assert sorted(decoded(tmp_path / "a", "val")) != sorted(decoded(tmp_path / "c", "val"))


@pytest.mark.parametrize(("values", "count"), [({}, 2), ({"val_share": 0.25}, 10), ({"val_share": 0.001}, 1)])
def test_a_share_validates(tmp_path: pathlib.Path, text: pathlib.Path, values: dict[str, float], count: int) -> None:
    manifest, _ = build(tmp_path / "x", text, **values)
    assert (manifest.val.documents, manifest.train.documents) == (count, 40 - count)


# White space that the normaliser joins, and characters that it writes otherwise.
SAME = ("two  words", "two words", " two\nwords\n", "two\u00a0words")


def test_documents_that_become_the_same_tokens_are_one(tmp_path: pathlib.Path) -> None:
    text = write_lines(tmp_path / "x.jsonl", [*SAME[:2], *DOCUMENTS, *SAME[2:], DOCUMENTS[3], "", " \n"])
    manifest, said = build(tmp_path / "x", text, val_documents=20)
    assert (manifest.train.documents, manifest.val.documents) == (21, 20)
    assert manifest.recipe["documents_left_out"] == {"blank": 2, "doubled": 4, "overlapping": 0}
    assert "left out 2 documents without any text" in said
    assert f"left out 4 documents that another one is the same as, such as {text}:2, which is {text}:1" in said
    assert check_corpus(CheckRequest(tmp_path / "x")).findings == []


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=2, max_size=12), st.data())
@settings(max_examples=6)
def test_no_document_is_split_or_in_both(texts: list[str], data: st.DataObject) -> None:
    """Whatever the texts: what check finds apart, build has kept apart, and all of the text is there once."""
    texts = [*texts, "one more", "another one"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = folder / "m.model"
        model.write_bytes(MODEL)
        path = write_lines(folder / "x.jsonl", texts)
        share = data.draw(st.floats(0.01, 0.99))
        manifest, _ = build(
            folder / "x", path, val_share=share, tokenizer=model, shard_tokens=data.draw(st.integers(5, 50))
        )
        assert check_corpus(CheckRequest(folder / "x")).findings == []
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=MODEL)
        kept = decoded(folder / "x", "train") + decoded(folder / "x", "val")
        assert len(kept) == len(set(kept)) == manifest.train.documents + manifest.val.documents
        normal = {tokenizer.normalize(text).strip("\u2581").replace("\u2581", " ") for text in texts} - {""}
        assert set(kept) == normal


MODEL = train_tokenizer(DOCUMENTS, 300)


def given_validation(tmp_path: pathlib.Path) -> pathlib.Path:
    """Ten documents, three of which are among the forty, one of them twice."""
    new = [f"never seen {i}" for i in range(7)]
    return write_lines(tmp_path / "val.jsonl", [*new, DOCUMENTS[5], DOCUMENTS[8], DOCUMENTS[9], DOCUMENTS[9]])


def test_given_validation_that_overlaps_is_refused(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    val = given_validation(tmp_path)
    with pytest.raises(DataError) as caught:
        build(tmp_path / "x", text, val_files=(val,))
    assert str(caught.value).startswith(
        f"3 of the 11 validation documents are training documents too, such as {text}:6, which is {val}:8; --overlap"
    )
    assert not (tmp_path / "x").exists()


def test_given_validation_dropped_from_training(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    manifest, said = build(tmp_path / "x", text, val_files=(given_validation(tmp_path),), overlap="drop")
    assert decoded(tmp_path / "x", "val") == [
        *(f"never seen {i}" for i in range(7)),
        *(DOCUMENTS[i] for i in (5, 8, 9)),
    ]
    assert sorted(decoded(tmp_path / "x", "train")) == sorted(set(DOCUMENTS) - {DOCUMENTS[i] for i in (5, 8, 9)})
    assert manifest.recipe["documents_left_out"] == {"blank": 0, "doubled": 1, "overlapping": 3}
    assert "left 3 documents out of training that --val has too" in said
    assert not manifest.contaminated
    assert check_corpus(CheckRequest(tmp_path / "x")).findings == []


def test_given_validation_that_is_trained_on_marks_the_corpus(tmp_path: pathlib.Path) -> None:
    text = write_lines(tmp_path / "text.jsonl", [*DOCUMENTS, DOCUMENTS[5]])
    manifest, said = build(tmp_path / "x", text, val_files=(given_validation(tmp_path),), overlap="keep")
    assert (manifest.train.documents, manifest.val.documents) == (40, 10)
    assert manifest.contaminated
    assert "warning: 3 documents of --val are trained on too; the corpus is marked as contaminated" in said
    assert open_corpus(tmp_path / "x").warning == (
        "3 of its 10 validation documents are training documents too. "
        "Its training part overlaps the validation documents: no score on it may be quoted."
    )
    (finding,) = check_corpus(CheckRequest(tmp_path / "x")).findings
    assert (finding.severity, finding.code) == ("warning", "overlap")


def write_tokenizer(path: pathlib.Path, documents: list[str], **options: Any) -> pathlib.Path:
    """A tokenizer as somebody else might have trained it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents), model_writer=model, model_type="bpe", minloglevel=2, **options
    )
    path.write_bytes(model.getvalue())
    return path


def test_a_given_tokenizer_that_loses_bytes_is_named(tmp_path: pathlib.Path) -> None:
    known = ["document one and two", "and three: 0 1 2 3 4 5 6 7 8 9"]
    tokenizer = write_tokenizer(tmp_path / "lossy.model", known, vocab_size=50, add_dummy_prefix=False)
    text = write_lines(tmp_path / "text.jsonl", [*DOCUMENTS, "one 語", "one Ω"])
    manifest, said = build(tmp_path / "x", text, tokenizer=tokenizer, val_share=0.5)
    assert manifest.tokenizer.file == "lossy.model"
    assert [line for line in said if line.startswith(f"warning: {tokenizer}: it has no byte fallback")]
    assert "left out 1 document that another one is the same as" in " ".join(said), "both are one and the unknown token"
    val = manifest.val
    assert val.normalised_bytes == val.text_bytes
    assert val.scored_bytes < val.text_bytes
    lost = 100 * (1 - val.scored_bytes / val.text_bytes)
    assert manifest.warning == (
        f"Its tokenizer counts {val.scored_bytes:,} bytes for {val.text_bytes:,} bytes of validation text "
        f"({lost:.3g} % lost): bits per byte on it compare only with scores under the same tokenizer."
    )
    assert open_corpus(tmp_path / "x").warning == manifest.warning
    (finding,) = check_corpus(CheckRequest(tmp_path / "x")).findings
    assert (finding.severity, finding.code) == ("warning", "tokenizer-unknown-bytes")
    assert f"({lost:.3g} % of the validation bytes are lost)" in finding.what


def test_a_given_tokenizer_that_knows_nothing_is_refused(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "lossy.model", ["abc abc"], vocab_size=8)
    val = write_lines(tmp_path / "val.jsonl", ["Ω"])
    with pytest.raises(DataError, match=r"lossy\.model knows nothing of the validation text: no byte is scored"):
        build(tmp_path / "x", text, val_files=(val,), tokenizer=tokenizer)


@pytest.mark.parametrize("options", [{"add_dummy_prefix": True}, {"normalization_rule_name": "identity"}])
def test_a_given_tokenizer_that_puts_a_space_in_front_loses_none(
    tmp_path: pathlib.Path, text: pathlib.Path, options: dict[str, Any]
) -> None:
    tokenizer = write_tokenizer(tmp_path / "m.model", DOCUMENTS, vocab_size=300, byte_fallback=True, **options)
    manifest, _ = build(tmp_path / "x", text, tokenizer=tokenizer)
    assert manifest.val.scored_bytes == manifest.val.normalised_bytes == manifest.val.text_bytes
    assert manifest.warning == ""
    assert check_corpus(CheckRequest(tmp_path / "x")).findings == []


REFUSED = {
    "nothing to tell apart": (
        {"val_documents": 40},
        "--val-documents 40: must be fewer than the 40 documents that there",
    ),
    "too many": ({"val_documents": 41}, "--val-documents 41: must be fewer than the 40 documents"),
    "none": ({"val_documents": 0}, "--val-documents must be at least 1, got 0"),
    "no share": ({"val_share": 0.0}, "--val-share must be above 0 and below 1, got 0"),
    "NaN": ({"val_share": float("nan")}, "--val-share must be above 0 and below 1, got nan"),
    "twice": ({"val_share": 0.1, "val_documents": 3}, "--val-documents and --val-share say the same thing twice"),
    "overlap of nothing": ({"overlap": "drop"}, "--overlap drop is about the files of --val, and none is given"),
    "no such overlap": ({"overlap": "ignore"}, "--overlap must be one of refuse, drop, keep, got 'ignore'"),
    "two vocabularies": (
        {"vocab_size": 300, "tokenizer": pathlib.Path("x.model")},
        "--tokenizer has its own number of pieces: leave --vocab-size out",
    ),
    "shards of nothing": ({"shard_tokens": 0}, "--shard-tokens must be at least 1 and below 2147483648, got 0"),
    "too large a vocabulary": (
        {"vocab_size": 60_000},
        "no tokenizer of 60000 pieces can be trained on these documents: 38 ",
    ),
    "too small a vocabulary": ({"vocab_size": 260}, "--vocab-size must be above 260 and at most 65536, got 260"),
    "no tokenizer file": ({"tokenizer": pathlib.Path("absent.model")}, "absent.model: no such file; a tokenizer is a"),
    "no tokenizer": ({"tokenizer": pathlib.Path(__file__)}, "test_own_text.py: not a SentencePiece model: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: pathlib.Path, text: pathlib.Path, name: str) -> None:
    values, message = REFUSED[name]
    with pytest.raises(DataError) as caught:
        build(tmp_path / "out" / "x", text, **values)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == [text], "nothing is left"


@pytest.mark.parametrize("name", ["", " ", "a/b", ".hidden"])
def test_a_name_that_is_none(tmp_path: pathlib.Path, text: pathlib.Path, name: str) -> None:
    with pytest.raises(DataError, match="--name must be fit for a file and not begin with a dot"):
        build_own_text(OwnText(name=name, files=[text]), tmp_path / "x")


def test_a_tokenizer_without_bos(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    write_tokenizer(tmp_path / "m.model", DOCUMENTS, vocab_size=60, bos_id=-1)
    with pytest.raises(DataError, match=r"m\.model: has no BOS piece, so documents could not be told apart"):
        build(tmp_path / "x", text, tokenizer=tmp_path / "m.model")


def test_one_document_is_too_few(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.txt").write_text("\n\n".join(DOCUMENTS))
    with pytest.raises(
        DataError, match=r"1 document in all, but training needs one and validation another; --separator"
    ):
        build(tmp_path / "x", tmp_path / "x.txt")


def test_nothing_to_train_on(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    with pytest.raises(DataError, match="no document is left to train on: all of them are in the files of --val"):
        build(tmp_path / "x", text, val_files=(text,), overlap="drop")


@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_what_is_there_is_not_written_over(tmp_path: pathlib.Path, text: pathlib.Path, kind: str) -> None:
    out = tmp_path / "x"
    out.write_text("mine") if kind == "file" else out.mkdir() if kind == "folder" else out.symlink_to("nowhere")
    with pytest.raises(
        DataError, match="is there already; a corpus is written once: choose another --out, or delete it"
    ):
        build(out, text)


def test_a_folder_that_cannot_be_made(tmp_path: pathlib.Path, text: pathlib.Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        CannotWriteError, match=r"could not be built: .* choose an --out on a disk that can be written"
    ) as caught:
        build(tmp_path / "file" / "x", text)
    assert caught.value.exit_code == 4


def test_a_corpus_is_named_as_its_folder() -> None:
    assert name_of(pathlib.Path("some/where/mine")) == "mine"
    with pytest.raises(DataError, match=r"^--out some/\.hidden: a corpus is named as its folder, .*; give --name$"):
        name_of(pathlib.Path("some/.hidden"))
