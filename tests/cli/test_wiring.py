"""What joins a configuration and a corpus."""

import pathlib

import numpy
import pytest

from golfray.cli.dry_run import dry_run
from golfray.cli.output import Output
from golfray.cli.prepare import on_its_corpus
from golfray.cli.wiring import absolute, corpus_for, passes_lines, preset_seq_lens, study_folder
from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer, Resolved, resolve
from golfray.core.shards import list_shards
from golfray.data.corpus import Corpus
from golfray.data.token_files import read_chunks, write_shards
from golfray.sweep.space import load_space
from golfray.tracking.store import Store

SPACE = """\
name: one
preset: parameter-golf
scale: laptop
budget: {{trials: 2}}
fixed: {{model.vocab_size: 320, data.folder: {folder}, data.tokenizer: {tokenizer}}}
knobs:
  batch.seq_len: {{choices: [64, 128, 256]}}
"""


def resolved_with(*sets: str) -> Resolved:
    return resolve("parameter-golf", "laptop", [Layer.from_sets(sets)], has_gpu=False)


@pytest.fixture
def short(tiny_corpus: Corpus, tmp_path: pathlib.Path) -> pathlib.Path:
    """A corpus without a manifest, 200 validation tokens in two shards and 1,500 to train on."""
    folder = tmp_path / "short"
    folder.mkdir()
    for split, count, shard_tokens in (("val", 200, 150), ("train", 1500, 1000)):
        tokens = numpy.concatenate(list(read_chunks(list_shards(tiny_corpus.folder, split))))[:count]
        write_shards(folder, split, [tokens], shard_tokens)
    return folder


def test_a_vocabulary_below_the_tokenizer_is_refused_where_it_was_written(tiny_corpus: Corpus) -> None:
    folder = f"data.folder={tiny_corpus.folder}"
    assert corpus_for(resolved_with(folder, "model.vocab_size=320")) == tiny_corpus
    with pytest.raises(ConfigError) as caught:
        corpus_for(resolved_with(folder, "model.vocab_size=256"))
    message = f"--set model.vocab_size: must be >= 320, the pieces of {tiny_corpus.tokenizer}, got 256"
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


def test_a_validation_split_without_one_sequence_is_refused_before_anything_starts(
    tiny_corpus: Corpus, short: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    own = [f"data.folder={short}", f"data.tokenizer={tiny_corpus.tokenizer}", "model.vocab_size=320"]
    assert corpus_for(resolved_with(*own, "batch.seq_len=128")).val_tokens == 200
    with pytest.raises(
        ConfigError, match=r"^--set batch\.seq_len: must be <= 199, .* 200 validation tokens of .*short"
    ):
        corpus_for(resolved_with(*own, "batch.seq_len=256"))
    path = tmp_path / "space.yaml"
    path.write_text(SPACE.format(folder=short, tokenizer=tiny_corpus.tokenizer))
    space = load_space(path, has_gpu=False)
    study = tmp_path / "study"
    for refused in (
        lambda: on_its_corpus(space),
        lambda: dry_run(space, study, Store.of(study, None), None, Output(quiet=True)),
    ):
        with pytest.raises(ConfigError, match=r"space\.yaml:7 knobs\.batch\.seq_len: its largest value must be <= 199"):
            refused()
    assert not study.exists()


def test_a_step_longer_than_the_training_text_is_said(tiny_corpus: Corpus, short: pathlib.Path) -> None:
    config = resolved_with(f"data.folder={short}", f"data.tokenizer={tiny_corpus.tokenizer}", "model.vocab_size=320")
    corpus = corpus_for(config)
    says = "each step reads the training text 1.4 times: batch.tokens is more than there are"
    assert passes_lines(config.config, corpus) == [says]
    assert passes_lines(config.config, tiny_corpus) == []


def test_sequences_of_the_presets() -> None:
    assert preset_seq_lens() == {"parameter-golf at scale full": 1024, "parameter-golf at scale laptop": 128}


def test_a_studys_folder_has_a_name_that_a_store_can_hold(tmp_path: pathlib.Path) -> None:
    assert study_folder(tmp_path / "é") == tmp_path / "é"
    with pytest.raises(ConfigError, match="not UTF-8"):
        study_folder(tmp_path / "a\udcff")


def test_a_home_that_nobody_has_is_no_path() -> None:
    with pytest.raises(
        ConfigError, match=r"^~nobody-of-this-name/x: begins with the home folder of a user who has none"
    ):
        absolute(pathlib.Path("~nobody-of-this-name/x"))
