"""A small corpus that a test may change."""

import pathlib
import shutil

import pytest

from golfray.data.corpus import Corpus


@pytest.fixture
def folder(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the tiny corpus: two training shards, one validation shard, tokenizer, manifest."""
    return shutil.copytree(tiny_corpus.folder, tmp_path / "corpus")


@pytest.fixture
def bare(folder: pathlib.Path) -> pathlib.Path:
    """The same without a manifest, as published shards lie."""
    (folder / "manifest.json").unlink()
    return folder
