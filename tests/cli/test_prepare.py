"""What a study is resumed on: the folder of its log, another one, or a demo corpus that has to be built again."""

import dataclasses
import pathlib
import shutil

import pytest

from golfray.cli.output import Output
from golfray.cli.prepare import on_its_corpus, prepare
from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer
from golfray.data.corpus import demo_corpus
from golfray.sweep.space import load_space
from golfray.tracking.store import Store
from tests.cli.begun import begin_study

SPACE = """\
name: one
preset: parameter-golf
scale: laptop
workers: 1
budget: {trials: 2}
replicates: 1
fixed: {stop.steps: 5, stop.seconds: null}
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


@pytest.fixture
def started(tmp_path: pathlib.Path):
    """Writes the first record of a study on a corpus (none: the demo's), and nothing more; returns its folder."""

    def start(sets: list[str]) -> pathlib.Path:
        (tmp_path / "space.yaml").write_text(SPACE)
        layers = [Layer.from_sets(sets)]
        space, corpus = on_its_corpus(load_space(tmp_path / "space.yaml", has_gpu=False, layers=layers))
        return begin_study(tmp_path / "study", space, corpus)

    return start


def resumed(folder: pathlib.Path, sets: list[str], allow: bool = False):
    return prepare(None, folder, Store.of(folder, None), sets=sets, allow=allow, output=Output(quiet=True))


def test_a_folder_that_moved_brings_its_own_tokenizer(started, tiny_corpus, tmp_path: pathlib.Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(tiny_corpus.folder, old)
    folder = started([f"data.folder={old}", "model.vocab_size=320"])
    old.rename(new)
    with pytest.raises(ConfigError, match="--allow-changes"):
        resumed(folder, [f"data.folder={new}"])
    prepared = resumed(folder, [f"data.folder={new}"], allow=True)
    assert prepared.corpus == dataclasses.replace(
        tiny_corpus, folder=new, tokenizer=new / tiny_corpus.tokenizer.relative_to(tiny_corpus.folder)
    )
    assert prepared.changes == [f'data.folder: "{old}" -> "{new}"']


@pytest.mark.slow  # trains a tokenizer
def test_a_demo_corpus_that_was_deleted_is_built_again(started, tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setenv("GOLFRAY_HOME", str(tmp_path / "home"))
    folder = started([])
    corpus = demo_corpus()
    shutil.rmtree(tmp_path / "home")
    prepared = resumed(folder, [])
    assert prepared.corpus == corpus
    assert corpus.tokenizer.is_file()
    assert prepared.changes == []
