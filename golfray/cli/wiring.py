"""How the floors are joined: from what was typed to a configuration, a corpus and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golfray.config.resolve import Resolved
    from golfray.config.schema import Config
    from golfray.core.settings import RunSettings
    from golfray.data.corpus import Corpus
    from golfray.sweep.space import Space


def has_gpu() -> bool:
    """Whether torch sees a GPU on this machine."""
    import torch

    return torch.cuda.is_available()


def cluster_has_gpu(address: str | None) -> Callable[[], bool]:
    """What says whether trials will find a GPU: on the Ray cluster at ``address``, or on this machine without one."""
    if address is None:
        return has_gpu

    def ask() -> bool:
        from golfray.cluster.far_resources import far_resources

        return far_resources(address).get("GPU", 0.0) > 0

    return ask


def resolve_configuration(preset: str, scale: str, sets: list[str]) -> Resolved:
    """One configuration from a preset, a scale and ``--set`` overrides."""
    from golfray.config.resolve import Layer, resolve

    return resolve(preset, scale, [Layer.from_sets(sets)], has_gpu=has_gpu)


def corpus_for(over: Resolved | Space) -> Corpus:
    """The corpus that a configuration, or all trials of a space, train on; at laptop scale the demo corpus where none
    is named.

    Raises ``DataError`` where there is none or it is damaged, and ``ConfigError``, placed where the value was written,
    where some trial would have a vocabulary too small for its tokenizer, or sequences too long for its validation.
    """
    from golfray.core.settings import DataSettings
    from golfray.data.corpus import choose_corpus
    from golfray.sweep.corpus_limits import CorpusLimits
    from golfray.sweep.space import Space

    config = over.base.config if isinstance(over, Space) else over.config
    corpus = choose_corpus(config.scale, DataSettings(folder=config.data.folder, tokenizer=config.data.tokenizer))
    limits = CorpusLimits(str(corpus.folder), str(corpus.tokenizer), corpus.val_tokens, corpus.vocab_size)
    if isinstance(over, Space):
        limits.check_space(over)
    else:
        limits.check(over)
    return corpus


def preset_seq_lens() -> dict[str, int]:
    """Tokens of one sequence as each preset has them at each scale, by "PRESET at scale SCALE"."""
    from typing import get_args

    from golfray.config.resolve import preset_names, resolve
    from golfray.config.schema import Scale

    return {
        f"{preset} at scale {scale}": resolve(preset, scale, has_gpu=False).config.batch.seq_len
        for preset in preset_names()
        for scale in get_args(Scale)
    }


def passes_lines(config: Config, corpus: Corpus) -> list[str]:
    """A line where a run of so many steps, or one step alone, reads the training text more than once."""
    a_step = config.batch.tokens / corpus.train_tokens
    passes = (config.stop.steps or 0) * a_step
    if passes <= 1 and a_step > 1:
        return [f"each step reads the training text {a_step:.1f} times: batch.tokens is more than there are"]
    if passes <= 1:
        return []
    limit = "" if config.stop.seconds is None else ", unless its time ends it earlier"
    return [f"{config.stop.steps:,} steps read the training text {passes:.1f} times{limit}"]


def run_settings(config: Config, corpus: Corpus | None) -> RunSettings:
    """Settings of a run with the packed script's size in them, on ``corpus`` where one is given."""
    from golfray.ship.packer import bytes_code

    settings = config.to_run_settings(0)
    settings = dataclasses.replace(settings, bytes_code=bytes_code(settings))
    return settings if corpus is None else dataclasses.replace(settings, data=corpus.settings())


def check_codecs(over: Config | Space) -> None:
    """Raise ``CodecMissing`` where a codec that some trial may export with is not installed: before any trains."""
    from golfray.config.schema import Config
    from golfray.core.codec import codec_module
    from golfray.sweep.export_space import STRONGEST
    from golfray.sweep.knobs import Choice

    config, knobs = (over, ()) if isinstance(over, Config) else (over.base.config, over.knobs)
    codecs: list[str] = [config.export.codec] if config.export.search is None else list(STRONGEST)
    for knob in knobs:
        if knob.path == "export.codec" and isinstance(knob.domain, Choice):
            codecs += map(str, knob.domain.choices)
    for codec in codecs:
        codec_module(codec)


def absolute(path: Path) -> Path:
    """The path from the root, without following links; raises ``ConfigError`` where ``~`` stands for no folder."""
    from golfray.config.errors import ConfigError

    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ConfigError("begins with the home folder of a user who has none here", file=str(path)) from error


def study_folder(path: Path) -> Path:
    """The folder of a study from the root; raises ``ConfigError`` where its name is no text, as every store needs."""
    from golfray.config.errors import ConfigError

    folder = absolute(path)
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("is a folder whose name is not UTF-8, so no store can hold it", file=str(folder)) from error
    return folder
