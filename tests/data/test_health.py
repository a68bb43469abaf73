"""What the doctor finds about a corpus."""

import shutil

import pytest

from golfray.data import health, kjv
from golfray.data.corpus import open_corpus


@pytest.fixture
def corpus(tiny_corpus, tmp_path):
    """A copy of the tiny corpus."""
    return open_corpus(shutil.copytree(tiny_corpus.folder, tmp_path / "corpus"))


def findings(corpus):
    return {finding.code: finding for finding in health.check(corpus, lambda line: None)}


def test_a_corpus_that_is_as_it_was_built(corpus):
    (found,) = findings(corpus).values()
    assert (found.severity, found.where) == ("ok", str(corpus.folder))
    assert found.what == f"tiny: {corpus.train_tokens:,} training tokens in 3 shards, digest {corpus.digest[:12]}"


def test_a_shard_that_changed_without_changing_its_size(corpus):
    shard = corpus.folder / "fineweb_train_000001.bin"
    content = bytearray(shard.read_bytes())
    content[-2] ^= 1
    shard.write_bytes(content)
    found = findings(corpus)
    assert set(found) == {"sum-differs"}
    assert found["sum-differs"].where == str(shard)


def test_a_corpus_that_nothing_vouches_for(corpus):
    tokenizer = corpus.tokenizer
    (corpus.folder / "manifest.json").unlink()
    found = findings(open_corpus(corpus.folder, tokenizer))
    assert {code: finding.severity for code, finding in found.items()} == {"data-unvouched": "warning", "data": "ok"}


def test_the_demo_corpus_that_is_not_built_yet(monkeypatch):
    (found,) = health.check_demo()
    assert (found.severity, found.code) == ("ok", "data")
    monkeypatch.setattr(kjv, "PACKAGE", "no-such-package")
    (found,) = health.check_demo()
    assert found.severity == "error"
    assert "not installed here" in found.what
