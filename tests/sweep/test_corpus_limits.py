"""What a corpus cannot serve is refused where it was written, whichever trial would have met it."""

import pathlib

import pytest

from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer, resolve
from golfray.sweep.corpus_limits import CorpusLimits
from golfray.sweep.space import Space, load_space

HEAD = """\
name: one
preset: parameter-golf
scale: laptop
budget: {trials: 2}
fixed: {batch.tokens: 2048, batch.slices: 2}
"""
# Of a laptop's micro-batch of 1,024 tokens.
LIMITS = CorpusLimits("/some/corpus", "/some/corpus/own.model", val_tokens=300, pieces=1024)
WHY = (
    "must be <= 299, as a validation sequence and the token after it must fit into the 300 validation tokens of "
    "/some/corpus, got {value}; set it to 256, which divides batch.tokens / batch.slices, or validate on more text"
)


def space(folder: pathlib.Path, knobs: str) -> Space:
    path = folder / "space.yaml"
    path.write_text(HEAD + knobs)
    return load_space(path, has_gpu=False)


@pytest.mark.parametrize(("seq_len", "fits"), [(256, True), (512, False)])
def test_a_configuration(seq_len: int, fits: bool) -> None:
    resolved = resolve("parameter-golf", "laptop", [Layer.from_sets([f"batch.seq_len={seq_len}"])], has_gpu=False)
    if fits:
        LIMITS.check(resolved)
        return
    with pytest.raises(ConfigError) as caught:
        LIMITS.check(resolved)
    assert str(caught.value) == f"--set batch.seq_len: {WHY.format(value=512)}"
    assert caught.value.exit_code == 2


def test_the_number_of_tokens_must_be_one_more_than_a_sequence() -> None:
    resolved = resolve("parameter-golf", "laptop", has_gpu=False)
    assert resolved.config.batch.seq_len == 128
    CorpusLimits("c", "t", val_tokens=129, pieces=1024).check(resolved)
    with pytest.raises(ConfigError, match=r"^presets/parameter-golf\.yaml:\d+:\d+ .*batch\.seq_len: must be <= 127, "):
        CorpusLimits("c", "t", val_tokens=128, pieces=1024).check(resolved)


@pytest.mark.parametrize(
    ("knobs", "value"),
    [
        ("{choices: [64, 256, 512, 1024]}", 1024),
        ("{low: 256, high: 1280, step: 256}", 1024),
        ("{low: 128, high: 512, step: 384}", 512),
    ],
)
def test_a_knob_is_refused_for_the_largest_value_that_a_trial_can_have(
    tmp_path: pathlib.Path, knobs: str, value: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        LIMITS.check_space(space(tmp_path, f"knobs:\n  batch.seq_len: {knobs}\n"))
    where = f"{tmp_path / 'space.yaml'}:7 knobs.batch.seq_len: its largest value "
    assert str(caught.value) == where + WHY.format(value=value)


@pytest.mark.parametrize("knobs", ["{choices: [64, 256]}", "{low: 128, high: 384, step: 128}", "{low: 1, high: 299}"])
def test_a_knob_that_fits_or_whose_longer_values_no_trial_can_have(tmp_path: pathlib.Path, knobs: str) -> None:
    LIMITS.check_space(space(tmp_path, f"knobs:\n  batch.seq_len: {knobs}\n"))


def test_a_knob_that_another_one_bounds(tmp_path: pathlib.Path) -> None:
    # model.num_layers stands for any bound: what is applied is the smaller of the two.
    knobs = "knobs:\n  batch.seq_len: {low: 2, high: 1024, at_most: model.num_layers}\n  model.num_layers: "
    LIMITS.check_space(space(tmp_path, knobs + "{low: 2, high: 16}\n"))
    with pytest.raises(ConfigError, match="its largest value must be <= 299"):
        LIMITS.check_space(space(tmp_path, knobs + "{low: 2, high: 512}\n"))
