"""Fetching a published dataset whole: from a folder and over http, continued, verified, and opened as a corpus."""

import dataclasses
import itertools
import json
import pathlib
import shutil

import numpy
import pytest
import sentencepiece

from golfray.core.settings import DataSettings
from golfray.core.shards import list_shards, map_shard
from golfray.data.corpus import Corpus, choose_corpus, open_corpus
from golfray.data.errors import CannotWriteError, DataError
from golfray.data.fetch import run_fetch
from golfray.data.fetch_errors import FetchError, FetchLockedError, MissingError
from golfray.data.manifest import check_files, read_manifest
from golfray.data.source_argument import parse_source
from tests.data.published_layout import NAME, QUICK, Heard, change_manifest, fetch, hashes, plan, publish, serve

SHARD = f"datasets/{NAME}/fineweb_train_000001.bin"


@pytest.fixture(scope="module")
def published(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The small source; not to be changed."""
    return publish(tmp_path_factory.mktemp("published"), tiny_corpus)


@pytest.fixture
def own(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A small source of the test's own."""
    return publish(tmp_path / "own", tiny_corpus)


def test_a_fetched_folder_is_the_corpus_it_was_made_from(
    published: pathlib.Path, tiny_corpus: Corpus, tmp_path: pathlib.Path
) -> None:
    fetched, heard = fetch(published, tmp_path / "data")
    assert fetched.folder == tmp_path / "data" / "datasets" / NAME
    assert hashes(fetched.folder) == hashes(published / "datasets" / NAME)
    assert heard.came[0] == "fineweb_320_bpe.model"
    assert heard.there == []

    corpus = open_corpus(fetched.folder)
    assert (corpus.train_tokens, corpus.val_tokens) == (tiny_corpus.train_tokens, tiny_corpus.val_tokens)
    assert corpus.val_bytes == tiny_corpus.val_bytes
    assert corpus.contaminated is False
    assert corpus.reference_points == {
        name: pytest.approx(tiny_corpus.reference_points[name]) for name in ("uniform", "unigram")
    }
    built, own = read_manifest(tiny_corpus.folder), read_manifest(fetched.folder)
    assert built is not None
    assert own is not None
    for split in ("train", "val"):
        ours, theirs = getattr(own, split), getattr(built, split)
        assert (ours.documents, ours.tokens, ours.scored_bytes) == (
            theirs.documents,
            theirs.tokens,
            theirs.scored_bytes,
        )
    check_files(fetched.folder, own)
    folder, vocab = fetched.settings()
    assert (folder, vocab) == (f"data.folder={fetched.folder}", "model.vocab_size=320")
    assert choose_corpus("full", DataSettings(folder=str(fetched.folder))).tokenizer.is_file()


def test_a_second_fetch_verifies_and_writes_nothing(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetch(published, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    _, heard = fetch(published, tmp_path)
    assert heard.came == []
    assert len(heard.there) == 2 + 2 + 5
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed <= {"manifest.json"}
    assert after.keys() == before.keys()


def test_over_http_it_is_the_same(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(published) as server:
        fetched, _ = fetch(server.base, tmp_path)
    assert hashes(fetched.folder) == hashes(published / "datasets" / NAME)
    assert f"from {server.base}:" in open_corpus(fetched.folder).warning


def test_fewer_shards_then_more(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(published, tmp_path, train_shards=2)
    assert open_corpus(fetched.folder).train_tokens == 50_000
    _, heard = fetch(published, tmp_path, train_shards=3)
    assert heard.came == ["fineweb_train_000002.bin"]
    assert open_corpus(fetched.folder).train_tokens == 75_000
    # Those that are there already stay a part of it.
    fetched, _ = fetch(published, tmp_path, train_shards=1)
    assert fetched.plan.train_shards == 3
    assert open_corpus(fetched.folder).train_tokens == 75_000


def test_more_shards_than_published_are_refused_with_the_numbers(
    published: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(DataError, match=r"--train-shards 6: fineweb10B_sp320 has 5 train shards \(11\d,\d{3} tokens\)"):
        fetch(published, tmp_path, train_shards=6)
    assert list(tmp_path.iterdir()) == []


def test_only_the_tokenizer(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, heard = fetch(published, tmp_path, tokenizer_only=True)
    assert heard.came == ["fineweb_320_bpe.model", "fineweb_320_bpe.vocab"]
    assert fetched.tokenizer.read_bytes() == (published / "tokenizers" / "fineweb_320_bpe.model").read_bytes()
    assert not fetched.folder.exists()


def test_documents_only_when_asked_for(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in ("docs_selected.jsonl", "docs_selected.source_manifest.json"):
        (own / name).write_text('{"text": "a"}\n')
    fetch(own, tmp_path / "without")
    assert not (tmp_path / "without" / "docs_selected.jsonl").exists()
    fetch(own, tmp_path / "with", documents=True)
    assert (tmp_path / "with" / "docs_selected.jsonl").read_bytes() == (own / "docs_selected.jsonl").read_bytes()


def test_documents_that_are_not_published_are_named(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(MissingError, match=r"docs_selected.jsonl: no such file; .* leave --documents out"):
        plan(published, tmp_path, documents=True)


def test_a_plan_says_everything_and_writes_nothing(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    planned = plan(published, tmp_path / "data", train_shards=2)
    assert not (tmp_path / "data").exists()
    shards = [published / "datasets" / NAME / f"fineweb_{name}.bin" for name in ("val_000000", "val_000001")]
    shards += [published / "datasets" / NAME / f"fineweb_train_00000{number}.bin" for number in range(2)]
    expected = sum(path.stat().st_size for path in [*shards, *(published / "tokenizers").iterdir()])
    assert planned.need_bytes == expected == planned.to_record()["need_bytes"]
    assert len(planned.file_lines()) == 6
    assert "the first 2 of 5 shard(s)" in "\n".join(planned.lines())


def test_of_many_files_that_are_missing_the_first_is_named(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for path in (own / "datasets" / NAME).iterdir():
        path.unlink()
    with pytest.raises(MissingError, match=r"fineweb_val_000000.bin: no such file; the manifest counts 2 val shard"):
        plan(own, tmp_path / "data")


def test_room_is_checked_before_anything_is_written(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    planned = dataclasses.replace(plan(published, tmp_path / "data"), free_bytes=100_000)
    with pytest.raises(CannotWriteError, match=r"bytes are needed, but 100,000 are free there") as refused:
        run_fetch(planned, QUICK, Heard())
    assert refused.value.exit_code == 4
    assert not (tmp_path / "data").exists()


def test_a_changed_byte_on_disk_is_found_and_mended(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetch(published, tmp_path)
    path = tmp_path / SHARD
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    _, heard = fetch(published, tmp_path)
    assert heard.came == [path.name]
    assert any(f"{path}: has sha256" in line and "; fetching it again" in line for line in heard.lines)
    assert hashes(path.parent) == hashes(published / "datasets" / NAME)


def test_an_id_beyond_the_vocabulary_is_named_and_not_kept(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tokens = numpy.memmap(own / SHARD, dtype="<u2", mode="r+", offset=1024)
    tokens[1234] = 320
    tokens.flush()
    with pytest.raises(
        DataError, match=r"fineweb_train_000001.bin: .* token 320 at position 1,234, .* vocab_size is 320"
    ):
        fetch(own, tmp_path / "data")
    left = sorted(path.name for path in (tmp_path / "data" / "datasets" / NAME).iterdir())
    assert left == ["fineweb_train_000000.bin", "fineweb_val_000000.bin", "fineweb_val_000001.bin"]


@pytest.mark.parametrize(("split", "said"), [("val", 1), ("train", 10**9)])
def test_sums_of_tokens_are_held_against_the_manifest(
    own: pathlib.Path, tmp_path: pathlib.Path, split: str, said: int
) -> None:
    change_manifest(own, lambda values: values["datasets"][0]["stats"].update({f"tokens_{split}": said}))
    with pytest.raises(DataError, match=rf"shards hold [\d,]+ tokens, but stats.tokens_{split} in .* says {said:,}"):
        plan(own, tmp_path / "data")


def test_a_prefix_cannot_hold_all_tokens(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["datasets"][0]["stats"].update(tokens_train=50_000))
    with pytest.raises(DataError, match=r"the first 2 train shards hold 50,000 tokens, .* says 50,000 for all of them"):
        plan(own, tmp_path / "data", train_shards=2)


def test_a_tokenizer_of_another_vocabulary(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["datasets"][0].update(vocab_size=512))
    with pytest.raises(DataError, match="this tokenizer has 320 pieces, but the manifest says 512"):
        fetch(own, tmp_path / "data")


@pytest.mark.parametrize("content", [b"<html>Sign in</html>", b"\x00" * 500])
def test_a_tokenizer_that_is_none_is_not_kept(own: pathlib.Path, tmp_path: pathlib.Path, content: bytes) -> None:
    model = own / "tokenizers" / "fineweb_320_bpe.model"
    good = model.read_bytes()
    model.write_bytes(content)
    with pytest.raises(DataError, match=r"320_bpe.model: what came is not what the manifest says: not a SentencePiece"):
        fetch(own, tmp_path / "data")
    assert list((tmp_path / "data" / "tokenizers").iterdir()) == []
    model.write_bytes(good)
    fetch(own, tmp_path / "data", train_shards=1)


def test_a_tokenizer_with_another_bos(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["datasets"][0].update(bos_id=2))
    with pytest.raises(DataError, match="has 1 as the id of BOS, but the manifest says 2"):
        fetch(own, tmp_path / "data")


def test_a_tokenizer_that_golfray_cannot_count_with(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["tokenizers"][0].update(kind="byte"))
    fetched, _ = fetch(own, tmp_path / "data")
    assert fetched.settings() == []
    assert "golfray cannot train on it: its tokenizer is of the kind byte" in fetched.lines()[-1]
    assert hashes(fetched.folder) == hashes(own / "datasets" / NAME)
    assert not (fetched.folder / "manifest.json").exists()


def test_byte_counts_of_its_own_are_warned_of(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["datasets"][0].update(val_bytes_glob="x"))
    fetched, _ = fetch(own, tmp_path / "data")
    assert "byte counts of their own (val_bytes_glob)" in open_corpus(fetched.folder).warning


def test_a_tokenizer_that_loses_bytes_is_told_of(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    words = ["".join(syllables) for syllables in itertools.product("bdfglmnprst", "aeiou", "klmnrst", "aeiou")]
    with open(own / "tokenizers" / "fineweb_320_bpe.model", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(words),
            model_writer=model,
            model_type="bpe",
            vocab_size=320,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            minloglevel=2,
        )
    fetched, _ = fetch(own, tmp_path / "data", train_shards=1)
    assert any("bytes cannot be counted exactly" in line and "no byte fallback" in line for line in fetched.lines())


def test_documents_that_run_together_are_told_of(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    change_manifest(own, lambda values: values["datasets"][0]["stats"].update(docs_val=7))
    fetched, _ = fetch(own, tmp_path / "data")
    assert any("counts 7 validation documents, but 18 begin with BOS" in line for line in fetched.lines())


def test_two_fetches_into_one_folder(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    from golfray.data.fetch import _only_one

    planned = plan(published, tmp_path)
    with _only_one(tmp_path), pytest.raises(FetchLockedError, match="another golfray data fetch is at work") as refused:
        run_fetch(planned, QUICK, Heard())
    assert refused.value.exit_code == 5


def test_another_source_does_not_mix_into_a_folder(
    published: pathlib.Path, own: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    fetch(published, tmp_path / "data", train_shards=1)
    with pytest.raises(DataError, match=rf"is from {published}, not from {own}; choose another folder with --to"):
        fetch(own, tmp_path / "data")
    # Not even where it was interrupted, when no manifest of golfray's lies there yet.
    (tmp_path / "data" / "datasets" / NAME / "manifest.json").unlink()
    with pytest.raises(DataError, match=rf"is from {published}, not from {own}"):
        fetch(own, tmp_path / "data")


def test_a_corpus_built_here_is_not_written_over(
    published: pathlib.Path, tiny_corpus: Corpus, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "datasets" / NAME
    shutil.copytree(tiny_corpus.folder, folder)
    before = hashes(folder)
    with pytest.raises(DataError, match="was built here and not fetched"):
        fetch(published, tmp_path)
    assert hashes(folder) == before


def test_whole_shards_of_somebody_else_are_not_written_over(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "datasets" / NAME
    folder.mkdir(parents=True)
    shutil.copyfile(published / "datasets" / NAME / "fineweb_val_000000.bin", folder / "fineweb_train_000000.bin")
    with pytest.raises(DataError, match="has 6,000 tokens where the source has 25,000, and golfray did not fetch it"):
        fetch(published, tmp_path)


def test_shards_that_another_tool_fetched_are_verified_and_kept(
    published: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(published / "datasets", tmp_path / "datasets")
    _, heard = fetch(published, tmp_path)
    assert len(heard.there) == 7
    assert heard.came == ["fineweb_320_bpe.model", "fineweb_320_bpe.vocab"]


@pytest.mark.parametrize(
    "stray", ["fineweb_train_000005.bin", "fineweb_val_000002.bin", "fineweb_val_bytes_000000.bin"]
)
def test_files_that_would_be_read_as_data_but_are_none_of_it(
    published: pathlib.Path, tmp_path: pathlib.Path, stray: str
) -> None:
    folder = tmp_path / "datasets" / NAME
    folder.mkdir(parents=True)
    (folder / stray).write_bytes(b"")
    with pytest.raises(DataError, match=rf"{stray}: not a file of {NAME}, but would be read as a part of it"):
        plan(published, tmp_path)


def test_a_gap_between_shards_is_named(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetch(published, tmp_path)
    (tmp_path / SHARD).unlink()
    with pytest.raises(
        DataError, match=r"000004.bin: is there, but fineweb_train_000001.bin is not.* --train-shards 5"
    ):
        fetch(published, tmp_path, train_shards=1)
    fetch(published, tmp_path, train_shards=5)
    assert hashes(tmp_path / "datasets" / NAME) == hashes(published / "datasets" / NAME)


def test_a_file_that_changed_at_the_source_is_fetched_again(own: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with serve(own) as server:
        fetch(server.base, tmp_path / "data")
        tokens = numpy.memmap(own / SHARD, dtype="<u2", mode="r+", offset=1024)
        tokens[7] = 300 - tokens[7]
        tokens.flush()
        _, heard = fetch(server.base, tmp_path / "data")
    assert heard.came == ["fineweb_train_000001.bin"]
    assert hashes(tmp_path / "data" / "datasets" / NAME) == hashes(own / "datasets" / NAME)


def test_a_damaged_ledger_is_named_and_can_be_deleted(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetch(published, tmp_path)
    (ledger,) = tmp_path.glob("fetched/*/ledger.json")
    for content in ("{", "[" * 100_000):
        ledger.write_text(content)
        with pytest.raises(DataError, match=rf"{ledger}: not a list of fetched files .* delete it"):
            fetch(published, tmp_path)
    ledger.unlink()
    _, heard = fetch(published, tmp_path)
    assert heard.came == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent", "absent: no such folder, and neither an address"),
        ("/absent/folder", "no such folder"),
        ("http://example.org/x", "plain http is for this machine itself"),
        ("ftp://example.org/x", "must begin with https://"),
        ("https://", "not an address"),
        ("https://host:port/x", "not an address"),
        ("https://host/a b", "not an address"),
        ("https://host/x?y", "must have no '\\?'"),
        ("https://me:secret@host/x", "must have no user and no password"),
    ],
)
def test_a_source_that_is_none(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        parse_source(source, None, None, {})
    assert "secret" not in str(refused.value)
    assert not isinstance(refused.value, FetchError)
    assert refused.value.exit_code == 2


def test_options_that_do_not_go_with_the_source(published: pathlib.Path) -> None:
    with pytest.raises(DataError, match="--revision is for a dataset repository of the Hub"):
        parse_source(str(published), "v1", None, {})
    with pytest.raises(DataError, match=r"--root: '\.\./x' must be a path below the root"):
        parse_source(str(published), None, "../x", {})


def test_a_manifest_that_does_not_change_is_kept_as_published(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetch(published, tmp_path)
    (kept,) = tmp_path.glob("fetched/*/manifest.json")
    assert kept.read_bytes() == (published / "manifest.json").read_bytes()
    assert json.loads(kept.read_text())["version"] == "10B"
    assert not (tmp_path / "manifest.json").exists()


def test_every_shard_is_whole(published: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(published, tmp_path)
    for split in ("train", "val"):
        own = numpy.concatenate([map_shard(path) for path in list_shards(fetched.folder, split)])
        theirs = numpy.concatenate([map_shard(path) for path in list_shards(published / "datasets" / NAME, split)])
        assert (own == theirs).all()
