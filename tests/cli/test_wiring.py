"""What joins a configuration and a corpus."""

import pytest

from golfray.cli.wiring import corpus_for, study_folder
from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer, resolve


def test_a_vocabulary_below_the_tokenizer_is_refused_where_it_was_written(tiny_corpus) -> None:
    def resolved(pieces: int):
        sets = [f"data.folder={tiny_corpus.folder}", f"model.vocab_size={pieces}"]
        return resolve("parameter-golf", "laptop", [Layer.from_sets(sets)], has_gpu=False)

    assert corpus_for(resolved(tiny_corpus.vocab_size)) == tiny_corpus
    with pytest.raises(ConfigError) as caught:
        corpus_for(resolved(256))
    message = f"--set model.vocab_size: must be >= 320, the pieces of {tiny_corpus.tokenizer}, got 256"
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


def test_a_studys_folder_has_a_name_that_a_store_can_hold(tmp_path):
    assert study_folder(tmp_path / "é") == tmp_path / "é"
    with pytest.raises(ConfigError, match="not UTF-8"):
        study_folder(tmp_path / "a\udcff")
