"""An id beyond the vocabulary where no sample saw it: what a rank that met it says."""

import dataclasses
import shutil

import numpy
import pytest
import torch

from golfray.cluster.bad_tokens import describe_bad_token
from golfray.core.gang import Gang
from golfray.core.shards import map_shard
from golfray.core.trial import run_trial
from golfray.data.shard_header import header_for
from tests.threads import one_thread

ALONE = Gang(rank=0, world_size=1, device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def on_one_thread():
    with one_thread():
        yield


def write_shard(path, tokens):
    path.write_bytes(header_for(len(tokens)) + tokens.astype("<u2").tobytes())


@pytest.fixture
def corpus(tiny_corpus, tmp_path):
    """A copy that may be damaged, whose first train shard has 700 tokens: the second step reads from both."""
    folder = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.folder, folder)
    tokens = numpy.array(map_shard(folder / "fineweb_train_000000.bin"))
    write_shard(folder / "fineweb_train_000000.bin", tokens[:700])
    write_shard(folder / "fineweb_train_000001.bin", tokens[700:])
    return folder


def damage(path, position, token):
    tokens = numpy.array(map_shard(path))
    tokens[position] = token
    write_shard(path, tokens)


def words_of(settings, folder, run_folder):
    data = dataclasses.replace(settings.data, folder=str(folder))
    with pytest.raises(IndexError) as raised:
        run_trial(dataclasses.replace(settings, data=data), ALONE, run_folder)
    return describe_bad_token(raised.value)


@pytest.mark.parametrize(("shard", "position", "warmup_steps"), [(0, 699, 0), (1, 3, 2), (1, 318, 0)])
def test_in_training_file_position_and_value_are_named(
    corpus, tiny_settings, tiny_corpus, tmp_path, shard, position, warmup_steps
):
    path = corpus / f"fineweb_train_00000{shard}.bin"
    damage(path, position, 5000)
    settings = tiny_settings(stop={"steps": 4}, schedule={"warmup_steps": warmup_steps})
    assert words_of(settings, corpus, tmp_path / "run") == (
        f"{path}: token 5000 at position {position} is beyond the vocabulary of {tiny_corpus.vocab_size}; "
        f"`golfray data check {corpus}` reads every shard whole"
    )


def test_after_the_first_pass_it_is_the_same_place(corpus, tiny_settings, tmp_path):
    (corpus / "fineweb_train_000001.bin").unlink()
    damage(corpus / "fineweb_train_000000.bin", 699, 320)
    settings = tiny_settings(stop={"steps": 4}, schedule={"warmup_steps": 0})
    assert "token 320 at position 699 is beyond the vocabulary of 320" in words_of(settings, corpus, tmp_path / "run")


def test_in_validation(corpus, tiny_settings, tmp_path):
    path = corpus / "fineweb_val_000000.bin"
    damage(path, 5001, 321)
    said = words_of(tiny_settings(stop={"steps": 1}), corpus, tmp_path / "run")
    assert said.startswith(f"{path}: token 321 at position 5001 is beyond")


def test_what_is_no_matter_of_tokens_is_left_alone(corpus, tiny_settings, tmp_path):
    def refuse(point):
        raise ValueError("no room for the report")

    settings = tiny_settings(stop={"steps": 4}, data={"folder": str(corpus)})
    with pytest.raises(ValueError, match="no room") as raised:
        run_trial(settings, ALONE, tmp_path / "run", refuse)
    assert describe_bad_token(raised.value) is None
