"""What a fetched dataset's manifest says of documents in both splits is what is in its shards."""

import json
import pathlib
import shutil

import numpy
import pytest

from golfray.core.shards import list_shards
from golfray.data.check import CheckRequest, check_corpus
from golfray.data.corpus import Corpus, open_corpus
from golfray.data.fetch import Fetched
from golfray.data.manifest import read_manifest
from golfray.data.token_files import read_token_documents, write_shards
from tests.data.published_layout import NAME, TRAIN_SHARD_TOKENS, change_manifest, fetch, publish

BOS = 1
SHARD = f"datasets/{NAME}/fineweb_train_000001.bin"


def train_documents(source: pathlib.Path) -> list[numpy.ndarray]:
    return list(read_token_documents(list_shards(source / "datasets" / NAME, "train"), BOS))


def rewrite_train(source: pathlib.Path, documents: list[numpy.ndarray]) -> None:
    """Other training shards in their place, and the counts of the published manifest with them."""
    folder = source / "datasets" / NAME
    for path in list_shards(folder, "train"):
        path.unlink()
    paths = write_shards(folder, "train", documents, TRAIN_SHARD_TOKENS)
    counts = {"files_train": len(paths), "tokens_train": sum(map(len, documents))}
    change_manifest(source, lambda values: values["datasets"][0]["stats"].update(counts))


@pytest.fixture
def planted(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A source with two of the 18 validation documents in its training part, one of them twice and over a boundary."""
    source = publish(tmp_path / "planted", tiny_corpus)
    val = list(read_token_documents(list_shards(tiny_corpus.folder, "val"), BOS))
    documents = train_documents(source)
    ends = numpy.cumsum([len(document) for document in documents])
    first_over = int(numpy.searchsorted(ends, TRAIN_SHARD_TOKENS - 10))
    documents[first_over:first_over] = [val[3]]
    starts = numpy.cumsum([0, *(len(document) for document in documents)])
    assert starts[first_over] < TRAIN_SHARD_TOKENS < starts[first_over + 1], "it runs over a boundary"
    rewrite_train(source, [*documents, val[3], val[17]])
    return source


def said(fetched: Fetched) -> tuple[bool | None, str]:
    manifest = read_manifest(fetched.folder)
    assert manifest is not None
    corpus = open_corpus(fetched.folder)
    assert corpus.contaminated is manifest.contaminated
    return corpus.contaminated, corpus.warning


def test_planted_validation_documents_are_found_and_written_down(planted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(planted, tmp_path / "data")
    contaminated, warning = said(fetched)
    assert contaminated is True
    assert "2 of its 18 validation documents are training documents too." in warning
    assert "no score on it may be quoted" in warning
    assert any("2 of its 18 validation documents" in note for note in fetched.notes)
    result = check_corpus(CheckRequest(fetched.folder))
    (overlap,) = [finding for finding in result.findings if finding.code == "overlap"]
    assert overlap.severity == "warning"
    assert overlap.what.startswith("2 of 18 ")
    # Fewer shards are other data: only the one over the boundary of the first two is in them.
    one, _ = fetch(planted, tmp_path / "one", train_shards=1)
    assert said(one)[0] is False
    two, _ = fetch(planted, tmp_path / "one", train_shards=2)
    contaminated, warning = said(two)
    assert contaminated is True
    assert "1 of its 18 validation documents" in warning
    assert said(fetch(planted, tmp_path / "one", train_shards=2)[0]) == (contaminated, warning)


def test_a_damaged_copy_that_was_replaced_adds_no_overlap(
    tiny_corpus: Corpus, planted: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """What is read of a shard that turns out not to be the source's is forgotten."""
    clean = publish(tmp_path / "clean", tiny_corpus)
    to = tmp_path / "data"
    fetched, _ = fetch(clean, to)
    assert said(fetched)[0] is False
    target = to / SHARD
    assert (clean / SHARD).stat().st_size == (planted / SHARD).stat().st_size
    shutil.copyfile(planted / SHARD, target)
    fetched, heard = fetch(clean, to)
    assert heard.came == [target.name]
    assert said(fetched)[0] is False


@pytest.mark.parametrize("how", ["no BOS anywhere", "BOS once in validation"])
def test_documents_that_cannot_be_told_apart_leave_it_unknown(
    tiny_corpus: Corpus, tmp_path: pathlib.Path, how: str
) -> None:
    source = publish(tmp_path / "source", tiny_corpus)
    folder = source / "datasets" / NAME
    for split in ("val", "train") if how == "no BOS anywhere" else ("val",):
        for number, path in enumerate(list_shards(folder, split)):
            tokens = numpy.fromfile(path, "<u2", offset=1024)
            kept = 1 if split == "val" and number == 0 and how != "no BOS anywhere" else 0
            tokens[kept:][tokens[kept:] == BOS] = 5
            path.write_bytes(path.read_bytes()[:1024] + tokens.tobytes())
    fetched, _ = fetch(source, tmp_path / "data")
    contaminated, warning = said(fetched)
    assert contaminated is None
    assert "It is unknown whether training and validation overlap" in warning
    assert "may be quoted" in warning
    assert json.loads((fetched.folder / "manifest.json").read_text())["contaminated"] is None
    assert not [
        finding for finding in check_corpus(CheckRequest(fetched.folder)).findings if finding.code == "manifest"
    ]
    with_overlap = json.loads((fetched.folder / "manifest.json").read_text())
    assert with_overlap["val"]["documents"] == (0 if how == "no BOS anywhere" else 1)


def test_a_check_says_null_as_the_manifest_does(planted: pathlib.Path, tmp_path: pathlib.Path) -> None:
    fetched, _ = fetch(planted, tmp_path / "data")
    path = fetched.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "contaminated": None}))
    (overlap,) = [
        finding for finding in check_corpus(CheckRequest(fetched.folder)).findings if finding.code == "overlap"
    ]
    assert (overlap.severity, overlap.what.endswith("; manifest.json says contaminated: null")) == ("error", True)
