"""What is no file, has no end, or hides at the end of one, in the place of a shard, a manifest, a tokenizer."""

import os
import pathlib
import resource
import shutil
from collections.abc import Callable

import numpy
import pytest

from golfray.core.shards import list_shards, map_shard
from golfray.data.corpus import Corpus, open_corpus
from golfray.data.errors import DataError
from golfray.data.token_files import write_shards
from tests.data.checking import TRAIN, check, documents_of, found, only, rewrite, set_token


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
