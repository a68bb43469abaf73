"""The demo corpus end to end, folders with and without a manifest, and the refusals."""

import io
import json
import pathlib
import shutil
from collections.abc import Callable

import numpy
import pytest
import sentencepiece

from golfray.core.settings import DataSettings
from golfray.core.shards import list_shards
from golfray.data import kjv
from golfray.data.build import split_documents
from golfray.data.corpus import DEMO_RECIPE, Corpus, choose_corpus, demo_corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.manifest import read_manifest
from golfray.data.tokenizer import train_tokenizer
from tests.conftest import generated_documents
from tests.data.decoding import decode_documents


@pytest.fixture(scope="module")
def demo(golfray_home: pathlib.Path) -> Corpus:
    return demo_corpus()


def test_the_demo_corpus(demo: Corpus, golfray_home: pathlib.Path) -> None:
    assert demo.folder.parent == golfray_home / "corpora"
    assert demo.is_demo
    assert demo.contaminated is False
    assert "no score on it is a FineWeb" in demo.warning
    assert (demo.vocab_size, demo.val_bytes) == (1024, 248_444)
    # 60 shuffled chapters alone: known before this was written, to two digits
    assert round(demo.reference_points["zlib -9"], 2) == 2.59
    assert round(demo.reference_points["xz -9e"], 2) == 2.23
    assert demo.reference_points["unigram"] < demo.reference_points["uniform"]
    assert demo_corpus(golfray_home) == demo


def test_the_split_of_the_demo_corpus_never_changes(demo: Corpus) -> None:
    manifest = read_manifest(demo.folder)
    assert manifest is not None
    assert manifest.documents_sha256 == "05256fce088e9fc60a95aa8ce02d591f200fe611ec1ca6711d1b56a1a50effea"
    assert (manifest.train.documents, manifest.val.documents) == (1129, 60)


def test_the_demo_shards_decode_to_the_chapters(demo: Corpus) -> None:
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(demo.tokenizer))
    documents = kjv.read_kjv_documents(kjv.find_kjv())
    for split, chapters in zip(("train", "val"), split_documents(documents, 1337, 60), strict=True):
        decoded = decode_documents(list_shards(demo.folder, split), tokenizer)
        assert decoded == [" ".join(chapter.split()) for chapter in chapters]


def test_the_demo_tokenizer_never_saw_validation_text() -> None:
    assert DEMO_RECIPE.val_documents == 60
    train, val = split_documents(kjv.read_kjv_documents(kjv.find_kjv()), 1337, 60)
    assert not set(train) & set(val)


@pytest.fixture
def bare(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """The tiny corpus' shards alone, as downloaded data would lie."""
    for path in tiny_corpus.folder.glob("*.bin"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_a_folder_without_a_manifest(tiny_corpus: Corpus, bare: pathlib.Path) -> None:
    corpus = open_corpus(bare, tiny_corpus.tokenizer)
    assert corpus.name == bare.name
    assert (corpus.train_tokens, corpus.val_tokens) == (tiny_corpus.train_tokens, tiny_corpus.val_tokens)
    assert (corpus.vocab_size, corpus.val_bytes) == (tiny_corpus.vocab_size, tiny_corpus.val_bytes)
    assert corpus.reference_points == {"uniform": tiny_corpus.reference_points["uniform"]}
    assert "where this text is from" in corpus.warning
    assert corpus.contaminated is None
    assert not corpus.is_demo


def test_a_published_manifest_is_no_golfray_manifest(tiny_corpus: Corpus, bare: pathlib.Path) -> None:
    (bare / "manifest.json").write_text(json.dumps({"version": "10B", "datasets": []}))
    assert open_corpus(bare, tiny_corpus.tokenizer).contaminated is None


def test_a_folder_without_a_manifest_needs_a_tokenizer(bare: pathlib.Path) -> None:
    with pytest.raises(DataError, match=r"set data\.tokenizer to the SentencePiece model these shards were made with"):
        open_corpus(bare)


def test_a_tokenizer_that_is_none(bare: pathlib.Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such file"):
        open_corpus(bare, bare / "nowhere")
    with pytest.raises(DataError, match="not a SentencePiece model"):
        open_corpus(bare, bare / "fineweb_val_000000.bin")


def test_shards_of_a_larger_vocabulary_are_refused(tiny_corpus: Corpus, demo: Corpus) -> None:
    with pytest.raises(DataError, match="but the tokenizer has 320 pieces"):
        open_corpus(_without_manifest(demo.folder), tiny_corpus.tokenizer)


def _without_manifest(folder: pathlib.Path) -> pathlib.Path:
    bare = folder.with_name("bare")
    bare.mkdir()
    for path in folder.glob("*.bin"):
        shutil.copy(path, bare)
    return bare


def _cut(content: bytes) -> bytes:
    return content[:-2]


def _wrong_magic(content: bytes) -> bytes:
    return b"\1" + content[1:]


def _headerless(content: bytes) -> bytes:
    return content[1024:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            _cut,
            r"its header says 60,000 tokens, .* has 121,022: cut short, 2 bytes are missing .* build it again",
        ),
        (_wrong_magic, r"magic 20240385, must be 20240520, in what is a header otherwise"),
        (_headerless, r".* it looks like bare tokens without a header, .*`golfray data fetch --no-header` does"),
    ],
)
@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_shard_that_is_none_is_named(
    tiny_corpus: Corpus, copied: pathlib.Path, damage: Callable[[bytes], bytes], message: str, with_manifest: bool
) -> None:
    path = copied / "fineweb_train_000000.bin"
    path.write_bytes(damage(path.read_bytes()))
    if not with_manifest:
        (copied / "manifest.json").unlink()
    with pytest.raises(DataError, match=rf"fineweb_train_000000\.bin: {message}"):
        open_corpus(copied, tiny_corpus.tokenizer)


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("position", [0, -1])
def test_a_training_token_beyond_the_vocabulary_is_found_in_a_sample(
    tiny_corpus: Corpus, copied: pathlib.Path, position: int, with_manifest: bool
) -> None:
    path = copied / "fineweb_train_000001.bin"
    tokens = numpy.memmap(path, dtype="<u2", mode="r+", offset=1024)
    tokens[position] = 320
    tokens.flush()
    if not with_manifest:
        (copied / "manifest.json").unlink()
    message = (
        r"000001\.bin: token 320 in a sample of it, but the tokenizer tiny_320_bpe\.model has 320 pieces; .* every"
    )
    with pytest.raises(DataError, match=message):
        open_corpus(copied, tiny_corpus.tokenizer)


def test_another_tokenizer_of_the_same_vocabulary_is_warned_of(bare: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other.model"
    other.write_bytes(train_tokenizer(generated_documents(40, seed=9), 320))
    warning = open_corpus(bare, other).warning
    assert "None of its first documents is encoded by other.model as it is here" in warning


def test_a_tokenizer_that_cannot_be_exact_is_warned_of(bare: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(generated_documents(40, seed=9)), model_writer=model, vocab_size=320, minloglevel=2,
        user_defined_symbols=["<cap>"], byte_fallback=True,
    )  # fmt: skip
    other = tmp_path / "other.model"
    other.write_bytes(model.getvalue())
    assert "Of its tokenizer: it has 1 user-defined symbol(s) ('<cap>')" in open_corpus(bare, other).warning


def test_an_empty_folder_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: no fineweb_train"):
        open_corpus(tmp_path)


@pytest.fixture
def copied(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    return shutil.copytree(tiny_corpus.folder, tmp_path / "copied")


def test_a_folder_with_a_manifest_can_be_moved(tiny_corpus: Corpus, copied: pathlib.Path) -> None:
    corpus = open_corpus(copied)
    assert corpus.tokenizer == copied / tiny_corpus.tokenizer.name
    assert corpus.reference_points == tiny_corpus.reference_points
    assert open_corpus(copied, tiny_corpus.tokenizer) == corpus


def test_another_tokenizer_than_the_manifests_is_refused(copied: pathlib.Path, demo: Corpus) -> None:
    with pytest.raises(DataError, match=r"kjv_1024_bpe\.model: sha256 .* made with tiny_320_bpe\.model"):
        open_corpus(copied, demo.tokenizer)


def test_a_missing_shard_is_noticed(copied: pathlib.Path) -> None:
    (copied / "fineweb_train_000001.bin").unlink()
    with pytest.raises(DataError, match=r"the train shards hold 60000 tokens, but manifest\.json says"):
        open_corpus(copied)


@pytest.mark.parametrize("content", ["{", '{"format": "golfray-corpus/1", "name": "x"}'])
def test_a_manifest_that_makes_no_sense_is_named(copied: pathlib.Path, content: str) -> None:
    (copied / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: not .*; delete the folder .* and have it built anew"):
        open_corpus(copied)


def test_contaminated_data_says_so(copied: pathlib.Path) -> None:
    manifest = json.loads((copied / "manifest.json").read_text())
    (copied / "manifest.json").write_text(json.dumps({**manifest, "contaminated": True, "warning": "A test set."}))
    corpus = open_corpus(copied)
    assert corpus.contaminated
    assert corpus.warning.startswith("A test set. Its training part overlaps the validation documents")


def test_what_is_printed_and_recorded(tiny_corpus: Corpus, demo: Corpus) -> None:
    lines = demo.describe(4096)
    assert "81,612 validation tokens (248,444 bytes)" in lines[0]
    assert f"{demo.train_tokens // 4096} steps of 4,096 before they repeat" in lines[0]
    assert "uniform 3.28, unigram 2.72, zlib -9 2.59, xz -9e 2.23" in lines[1]
    assert lines[2] == demo.warning
    assert len(tiny_corpus.describe(1024)) == 2
    assert demo.to_record() == json.loads(json.dumps(demo.to_record()))
    told = {"folder", "name", "reference", "warning", "digest", "val_tokens", "val_bytes", "contaminated"}
    assert set(demo.to_record()) == told
    assert open_corpus(pathlib.Path(demo.settings().folder), pathlib.Path(demo.settings().tokenizer)) == demo


def test_choosing_at_laptop_scale(demo: Corpus, tiny_corpus: Corpus) -> None:
    assert choose_corpus("laptop", DataSettings()) == demo
    assert choose_corpus("laptop", DataSettings(folder=str(tiny_corpus.folder))) == tiny_corpus


def test_full_scale_without_fineweb_says_how_to_get_it(demo: Corpus) -> None:
    for data in (DataSettings(), demo.settings()):
        with pytest.raises(DataError, match="the full scale trains on FineWeb") as caught:
            choose_corpus("full", data)
        for word in (
            "golfray data fetch --to DIR",
            "--set data.folder=DIR/datasets/fineweb10B_sp1024",
            "golfray data build FILE... --out FOLDER",
            "--scale laptop",
        ):
            assert word in str(caught.value)


def test_full_scale_takes_other_data(tiny_corpus: Corpus, bare: pathlib.Path) -> None:
    data = DataSettings(folder=str(bare), tokenizer=str(tiny_corpus.tokenizer))
    assert choose_corpus("full", data).val_bytes == tiny_corpus.val_bytes


def test_the_digest_is_that_of_the_content_and_not_of_the_place(tiny_corpus, tmp_path):
    """A resumed study knows by it whether its data are the same."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(tiny_corpus.folder, copy)
    assert open_corpus(copy).digest == tiny_corpus.digest == tiny_corpus.to_record()["digest"]
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["train"]["shards"][0]["sha256"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert open_corpus(copy).digest != tiny_corpus.digest
