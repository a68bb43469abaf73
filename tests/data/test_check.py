"""Each kind of damage to a corpus is found and named, all of it at once, and what is right is let be."""

import pathlib
import shutil
import struct
from typing import Any

import pytest
import sentencepiece

from golfray.data.corpus import Corpus, demo_corpus
from golfray.data.errors import DataError
from golfray.data.token_files import write_shards
from golfray.data.tokenizer import train_tokenizer
from tests.data.checking import TRAIN, VAL, change_manifest, check, documents_of, found, only, rewrite, set_token
from tests.data.published_layout import fetch, publish


def test_nothing_is_wrong(tiny_corpus: Corpus) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_corpus.folder.rglob("*")}
    result = check(tiny_corpus.folder)
    assert result.findings == []
    assert result.facts["val"] == {"shards": 1, "tokens": tiny_corpus.val_tokens, "documents": 18,
                                   "scored_bytes": tiny_corpus.val_bytes}  # fmt: skip
    assert (result.facts["train"]["shards"], result.facts["train"]["documents"]) == (2, 190)
    sample = result.facts["sample"]
    assert (sample["differing"], sample["again"]) == (0, sample["comparable"])
    assert 200 < sample["documents"] <= 190 + 18
    assert result.facts["overlap"] == {"validation_documents": 18, "in_training": 0}
    assert {path: path.stat().st_mtime_ns for path in tiny_corpus.folder.rglob("*")} == before


def test_the_demo_corpus_is_right() -> None:
    result = check(demo_corpus().folder, sample=20)
    assert result.findings == []
    assert 20 < result.facts["sample"]["documents"] <= 40


def test_nothing_is_wrong_without_a_manifest(tiny_corpus: Corpus, bare: pathlib.Path) -> None:
    result = check(bare, tokenizer=tiny_corpus.tokenizer)
    assert result.findings == []
    assert result.facts["val"]["scored_bytes"] == tiny_corpus.val_bytes


def test_a_planted_duplicate_document(folder: pathlib.Path) -> None:
    val, train = documents_of(folder, "val"), documents_of(folder, "train")
    rewrite(folder, "train", [*train[:100], val[4], *train[100:], val[4]])

    def tell(values: dict[str, Any]) -> None:
        values["train"].update(documents=192, tokens=sum(map(len, train)) + 2 * len(val[4]))
        values["train"]["scored_bytes"] = check(folder).facts["train"]["scored_bytes"]

    change_manifest(folder, tell)
    finding = only(check(folder))
    assert (finding.severity, finding.code) == ("error", "overlap")
    start = sum(map(len, train[:100]))
    assert finding.what.startswith(
        f"1 of 18 of its own validation documents are training documents too, the first at token {start:,} of the "
        "training shards, beginning '"
    )
    assert finding.what.endswith("; manifest.json says contaminated: false")
    change_manifest(folder, lambda values: values.update(contaminated=True))
    finding = only(check(folder))
    assert (finding.severity, finding.code) == ("warning", "overlap")
    (folder / "manifest.json").unlink()
    finding = only(check(folder, tokenizer=folder / "tiny_320_bpe.model"))
    assert (finding.severity, finding.code) == ("error", "overlap")


def test_an_id_beyond_the_vocabulary(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    for position, token in ((50_001, 320), (50_002, 9_000), (59_999, 65_535)):
        set_token(bare / TRAIN[0], position, token)
    finding = only(check(bare, tokenizer=tiny_corpus.tokenizer))
    assert (finding.code, finding.where) == ("token-over-vocabulary", str(bare / TRAIN[0]))
    assert finding.what == (
        "3 token(s) beyond the 320 pieces of tiny_320_bpe.model, the first being 320 at position 50,001"
    )


def test_a_wrong_sum(folder: pathlib.Path) -> None:
    set_token(folder / TRAIN[1], 7, 300)
    result = check(folder)
    assert found(result)[0] == ("sum-differs", TRAIN[1])
    assert "changed since it was built: " in result.findings[0].what
    assert result.findings[0].remedy == f"delete the folder {folder} and have it built anew"


def damage_truncated(folder: pathlib.Path) -> None:
    (folder / TRAIN[1]).write_bytes((folder / TRAIN[1]).read_bytes()[:-1000])


def damage_magic(folder: pathlib.Path) -> None:
    content = (folder / TRAIN[1]).read_bytes()
    (folder / TRAIN[1]).write_bytes(struct.pack("<i", 1) + content[4:])


def damage_headerless(folder: pathlib.Path) -> None:
    (folder / TRAIN[1]).write_bytes((folder / TRAIN[1]).read_bytes()[1024:])


DAMAGES = {"shard-cut": damage_truncated, "shard-magic": damage_magic, "shard-headerless": damage_headerless}


@pytest.mark.parametrize("code", DAMAGES)
@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_shard_that_is_none(folder: pathlib.Path, tiny_corpus: Corpus, code: str, with_manifest: bool) -> None:
    DAMAGES[code](folder)
    if not with_manifest:
        (folder / "manifest.json").unlink()
    result = check(folder, tokenizer=tiny_corpus.tokenizer)
    assert found(result) == [(code, TRAIN[1])], "said once, and no count that follows from it"
    assert result.facts["train"]["shards"] == 1


def test_missing_files(folder: pathlib.Path) -> None:
    for name in (TRAIN[0], "tiny_320_bpe.model"):
        (folder / name).unlink()
    result = check(folder)
    assert found(result) == [("file-missing", "tiny_320_bpe.model"), ("file-missing", TRAIN[0])]


def test_missing_files_without_a_manifest(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    (bare / TRAIN[0]).unlink()
    (bare / VAL).unlink()
    (bare / "fineweb_train_000004.bin.part").write_bytes(b"")
    result = check(bare, tokenizer=tiny_corpus.tokenizer)
    assert found(result) == [
        ("shards-missing", TRAIN[0]),
        ("shards-missing", bare.name),
        ("unfinished", "fineweb_train_000004.bin.part"),
        ("no-first-bos", "fineweb_train_*.bin"),
    ]
    assert result.count("warning") == 2


def test_a_shard_that_the_manifest_does_not_know(folder: pathlib.Path) -> None:
    shutil.copy(folder / TRAIN[0], folder / "fineweb_train_000002.bin")
    result = check(folder)
    assert found(result)[0] == ("shard-unknown", "fineweb_train_000002.bin")


def test_another_tokenizer_than_the_manifests(folder: pathlib.Path) -> None:
    other = demo_corpus().tokenizer
    finding = only(check(folder, tokenizer=other))
    assert (finding.code, finding.where) == ("tokenizer-other", str(other))
    assert "not the tokenizer of these shards, which is tiny_320_bpe.model with sha256 " in finding.what


def test_another_tokenizer_of_the_same_vocabulary(
    bare: pathlib.Path, tiny_corpus: Corpus, tmp_path: pathlib.Path
) -> None:
    other = tmp_path / "other.model"
    other.write_bytes(train_tokenizer([f"the number {i} is before {i + 1}" for i in range(300)], 320))
    result = check(bare, tokenizer=other)
    assert ("tokenizer-other", "other.model") in found(result)
    said = next(finding for finding in result.findings if finding.code == "tokenizer-other").what
    again, comparable = result.facts["sample"]["again"], result.facts["sample"]["comparable"]
    assert said == f"it encodes {again} of {comparable} sampled documents to the tokens that the shards have"
    assert again < comparable / 2


def test_a_tokenizer_that_is_none_or_missing(bare: pathlib.Path) -> None:
    assert found(check(bare)) == [("tokenizer", bare.name)]
    assert "no golfray manifest.json here names the tokenizer" in only(check(bare)).what
    finding = only(check(bare, tokenizer=bare / VAL))
    assert (finding.code, finding.where) == ("tokenizer", str(bare / VAL))
    assert finding.what.startswith("not a SentencePiece model")
    assert "no such file" in only(check(bare, tokenizer=bare / "absent.model")).what


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "not readable as JSON (cut short?): "), ('{"format": "golfray-corpus/1"}', "not a manifest of the format ")],
)
def test_a_manifest_that_is_none(folder: pathlib.Path, content: str, what: str) -> None:
    (folder / "manifest.json").write_text(content)
    result = check(folder, tokenizer=folder / "tiny_320_bpe.model")
    finding = only(result)
    assert (finding.code, finding.where) == ("manifest", str(folder / "manifest.json"))
    assert finding.what.startswith(what)
    assert finding.remedy == f"delete the folder {folder} and have it built anew"


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        ("train.documents", 191, "train.documents is 191, but the shards have 190"),
        ("val.tokens", 5, "val.tokens is 5, but the shards have "),
        ("val.scored_bytes", 6, "val.scored_bytes is 6, but the shards have "),
        ("vocab_size", 321, "vocab_size is 321, but tiny_320_bpe.model has 320 pieces"),
        ("reference_points.uniform", 1.5, "reference_points.uniform is 1.5, but must be "),
    ],
)
def test_a_count_that_is_not_so(folder: pathlib.Path, path: str, value: float, what: str) -> None:
    def set_value(values: dict[str, Any]) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            values = values[parent]
        values[name] = value

    change_manifest(folder, set_value)
    result = check(folder)
    assert ("count-differs", "manifest.json") in found(result)
    assert any(finding.what.startswith(what) for finding in result.findings)
    assert {finding.code for finding in result.findings} == {"count-differs"}


def test_everything_at_once_is_listed(folder: pathlib.Path) -> None:
    rewrite(folder, "val", [*documents_of(folder, "val"), documents_of(folder, "train")[3]])
    set_token(folder / VAL, 5, 400)
    damage_truncated(folder)
    (folder / "fineweb_val_000009.bin").write_bytes(b"")
    codes = [code for code, _ in found(check(folder))]
    assert codes == ["shard-unknown", "shard-cut", "shard-cut", "sum-differs", "token-over-vocabulary", "overlap"]


def test_a_tokenizer_that_cannot_be_exact(tmp_path: pathlib.Path) -> None:
    """No byte fallback, and no manifest that knows how many bytes there were: what is lost at least is said."""
    import io

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["plain words and no others", "words and words"]),
        model_writer=model,
        model_type="bpe",
        vocab_size=30,
        user_defined_symbols=["<cap>"],
        minloglevel=2,
    )
    path = tmp_path / "lossy.model"
    path.write_bytes(model.getvalue())
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = ["plain words", "others <cap>and 語 words", "no words"]
    for split, chosen in (("val", texts), ("train", ["words and others"])):
        write_shards(tmp_path, split, [[tokenizer.bos_id(), *tokenizer.encode(text)] for text in chosen], 10**6)
    result = check(tmp_path, tokenizer=path)
    assert [(finding.severity, finding.code) for finding in result.findings] == [
        ("warning", "tokenizer-unknown-bytes"),
        ("warning", "tokenizer-user-defined"),
    ]
    # 11 + 25 + 8 bytes, of which the unknown character's 3 and the space behind it are not counted
    assert result.facts["val"]["scored_bytes"] == sum(len(text.encode()) for text in texts) - 4
    assert result.findings[0].what.endswith("(1 in the validation tokens: at least 2.44 % of the bytes are lost)")
    assert result.findings[1].what.endswith("(1 in the validation tokens, 12.5 % of the bytes)")


def test_bytes_that_do_not_decode(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    """A byte token that is no character's: counted as one byte, decoded as a mark of three."""
    set_token(bare / VAL, 3, 4 + 0xFF)
    finding = only(check(bare, tokenizer=tiny_corpus.tokenizer))
    assert (finding.severity, finding.code) == ("error", "bytes-differ")
    assert finding.what.startswith("1 of 207 sampled documents count other bytes than they decode to: ")


def test_shards_without_documents(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    rewrite(bare, "val", [[token for token in document if token != 1] for document in documents_of(bare, "val")])
    finding = only(check(bare, tokenizer=tiny_corpus.tokenizer))
    assert (finding.severity, finding.code) == ("warning", "no-documents")


def test_what_cannot_be_checked(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        check(tmp_path / "nowhere")
    with pytest.raises(DataError, match="--sample must be at least 1, got 0"):
        check(tmp_path, sample=0)
    with pytest.raises(DataError, match="--against-tokenizer is about the shards of --against"):
        check(tmp_path, against_tokenizer=tmp_path)
    assert found(check(tmp_path)) == [("shards-missing", tmp_path.name)] * 2 + [("tokenizer", tmp_path.name)]


def test_what_was_fetched_is_right(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(publish(tmp_path / "source", tiny_corpus), tmp_path / "here")
    result = check(fetched.folder)
    assert result.findings == []
    assert result.facts["val"]["scored_bytes"] == tiny_corpus.val_bytes
    set_token(fetched.folder / VAL, 7, 320)
    assert found(check(fetched.folder))[:2] == [("sum-differs", VAL), ("token-over-vocabulary", VAL)]
