"""Each kind of damage to a corpus is found and named, all of it at once, and what is right is let be."""

import dataclasses
import json
import os
import pathlib
import resource
import shutil
import struct
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import sentencepiece

from golfray.core.shards import list_shards, map_shard
from golfray.data.check import CheckRequest, CheckResult, check_corpus
from golfray.data.corpus import Corpus, demo_corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.findings import Finding
from golfray.data.manifest import describe_file
from golfray.data.token_files import read_token_documents, write_shards
from golfray.data.tokenizer import train_tokenizer
from tests.data.decoding import decode_documents
from tests.data.published_layout import fetch, publish

TRAIN = ("fineweb_train_000000.bin", "fineweb_train_000001.bin")
VAL = "fineweb_val_000000.bin"


@pytest.fixture
def folder(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the tiny corpus: two training shards, one validation shard, tokenizer, manifest."""
    return shutil.copytree(tiny_corpus.folder, tmp_path / "corpus")


@pytest.fixture
def bare(folder: pathlib.Path) -> pathlib.Path:
    """The same without a manifest, as published shards lie."""
    (folder / "manifest.json").unlink()
    return folder


def found(result: CheckResult) -> list[tuple[str, str]]:
    """Code and file of every finding."""
    return [(finding.code, pathlib.Path(finding.where).name) for finding in result.findings]


def check(folder: pathlib.Path, **options: Any) -> CheckResult:
    return check_corpus(CheckRequest(folder, **options))


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    return finding


def change_manifest(folder: pathlib.Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the manifest, its sums of the shards made true again."""
    values = json.loads((folder / "manifest.json").read_text())
    for split in ("train", "val"):
        shards = [dataclasses.asdict(describe_file(path)) for path in list_shards(folder, split)]
        values[split]["shards"] = shards
    change(values)
    (folder / "manifest.json").write_text(json.dumps(values))


def rewrite(folder: pathlib.Path, split: str, documents: list[list[int]]) -> None:
    """Other documents, in one shard."""
    for path in list_shards(folder, split):
        path.unlink()
    write_shards(folder, split, documents, 10**9)


def documents_of(folder: pathlib.Path, split: str) -> list[list[int]]:
    return [document.tolist() for document in read_token_documents(list_shards(folder, split), 1)]


def set_token(path: pathlib.Path, position: int, token: int) -> None:
    with open(path, "r+b") as file:
        file.seek(1024 + 2 * position)
        file.write(struct.pack("<H", token))


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
    with pytest.raises(
        DataError, match=r"--against-tokenizer .*\.model: is about shards, .*other\.txt is a"
    ):
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


def test_shards_are_read_whole(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    """The last token of the last shard counts as much as the first."""
    last = bare / TRAIN[1]
    set_token(last, len(map_shard(last)) - 1, 999)
    assert int(numpy.asarray(map_shard(last))[-1]) == 999
    assert found(check(bare, tokenizer=tiny_corpus.tokenizer)) == [("token-over-vocabulary", TRAIN[1])]


@pytest.mark.parametrize("number", ["20000000", "999999999999", "9" * 200])
def test_numbers_that_are_missing_are_counted_not_listed(bare: pathlib.Path, tiny_corpus: Corpus, number: str) -> None:
    shutil.copy(bare / TRAIN[0], bare / f"fineweb_train_{number}.bin")
    result = check(bare, tokenizer=tiny_corpus.tokenizer)
    assert found(result) == [("shards-missing", "fineweb_train_000002.bin")]
    missing = int(number) - 2
    assert only(result).what == f"{missing:,} numbers missing, this the first, though later ones are here"


@pytest.mark.parametrize("document", [[1] * 3000, [1, 1], [1], [300]])
def test_validation_without_a_byte_to_score(bare: pathlib.Path, tiny_corpus: Corpus, document: list[int]) -> None:
    """What training on it would refuse."""
    rewrite(bare, "val", [document])
    result = check(bare, tokenizer=tiny_corpus.tokenizer)
    assert ("nothing-scored", "fineweb_val_*.bin") in found(result)
    finding = next(finding for finding in result.findings if finding.code == "nothing-scored")
    assert finding.severity == "error"
    assert f"none of its {len(document):,} token(s) behind the first stands for any text" in finding.what
    with pytest.raises(DataError, match="no validation token stands for any text"):
        open_corpus(bare, tiny_corpus.tokenizer)


@pytest.mark.parametrize("named", ["absent.model", "."])
def test_a_tokenizer_that_is_no_file_beside_a_manifest(folder: pathlib.Path, named: str) -> None:
    finding = only(check(folder, tokenizer=folder / named))
    assert (finding.severity, finding.code, finding.where) == ("error", "tokenizer", str(folder / named))
    assert finding.what == ("must be a file" if named == "." else "no such file")


def test_a_manifest_nested_without_end(folder: pathlib.Path) -> None:
    (folder / "manifest.json").write_text("[" * 100_000)
    finding = only(check(folder, tokenizer=folder / "tiny_320_bpe.model"))
    assert (finding.code, finding.what) == ("manifest", "not readable as JSON: nested too deeply")


def no_pipe(path: pathlib.Path) -> None:
    os.mkfifo(path)


def no_folder(path: pathlib.Path) -> None:
    path.mkdir()


def no_link(path: pathlib.Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (no_pipe, "a named pipe"),
        (no_folder, "a folder"),
        (no_link, "a symbolic link to nowhere, which is not there"),
    ],
)
def test_what_is_no_file_in_the_place_of_a_shard(
    bare: pathlib.Path, tiny_corpus: Corpus, make: Callable[[pathlib.Path], None], kind: str
) -> None:
    make(bare / "fineweb_val_000001.bin")
    result = check(bare, tokenizer=tiny_corpus.tokenizer)
    assert found(result) == [("shard-no-file", "fineweb_val_000001.bin")]
    assert only(result).what == f"must be a file, but is {kind}"
    with pytest.raises(DataError, match=f"fineweb_val_000001.bin: must be a file, but is {kind}"):
        open_corpus(bare, tiny_corpus.tokenizer)


@pytest.mark.parametrize("make", [no_pipe, no_folder])
def test_a_manifest_that_is_no_file(bare: pathlib.Path, make: Callable[[pathlib.Path], None]) -> None:
    make(bare / "manifest.json")
    finding = only(check(bare, tokenizer=bare / "tiny_320_bpe.model"))
    assert (finding.code, finding.what) == ("manifest", "must be a file")
    with pytest.raises(DataError, match=r"manifest\.json: must be a file"):
        open_corpus(bare)


def test_more_shards_than_files_may_be_open(bare: pathlib.Path, tiny_corpus: Corpus) -> None:
    documents = documents_of(bare, "train")
    for path in list_shards(bare, "train"):
        path.unlink()
    write_shards(bare, "train", [*documents, documents_of(bare, "val")[0]], 500)
    count = len(list_shards(bare, "train"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = len(os.listdir("/proc/self/fd")) + 20
    assert count > 2 * allowed
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, limits[1]))
    try:
        result = check(bare, tokenizer=tiny_corpus.tokenizer)
        corpus = open_corpus(bare, tiny_corpus.tokenizer)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found(result) == [("overlap", bare.name)], "which reads a document from the midst of the shards"
    assert result.facts["train"]["shards"] == count
    assert corpus.train_tokens == result.facts["train"]["tokens"]
