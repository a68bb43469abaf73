"""How the floors are joined: from what was typed to a configuration, a corpus and settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golfray.config.resolve import Resolved
    from golfray.config.schema import Config
    from golfray.core.settings import RunSettings
    from golfray.data.corpus import Corpus


def has_gpu() -> bool:
    """Whether torch sees a GPU on this machine."""
    import torch

    return torch.cuda.is_available()


def resolve_configuration(preset: str, scale: str, sets: list[str]) -> Resolved:
    """One configuration from a preset, a scale and ``--set`` overrides."""
    from golfray.config.resolve import Layer, resolve

    return resolve(preset, scale, [Layer.from_sets(sets)], has_gpu=has_gpu)


def corpus_for(resolved: Resolved) -> Corpus:
    """The corpus a configuration trains on; at laptop scale the demo corpus where none is named.

    A vocabulary that is too small for the tokenizer is refused where it was written.
    """
    from golfray.core.settings import DataSettings
    from golfray.data.corpus import choose_corpus
    from golfray.data.errors import VocabularyError

    config = resolved.config
    named = DataSettings(folder=config.data.folder, tokenizer=config.data.tokenizer)
    try:
        return choose_corpus(config.scale, named, config.model.vocab_size)
    except VocabularyError as error:
        message = f"must be >= {error.pieces}, the pieces of {error.tokenizer}, got {config.model.vocab_size}"
        raise resolved.error("model.vocab_size", message) from error


def passes_lines(config: Config, corpus: Corpus) -> list[str]:
    """A line where a run of so many steps may read the training text more than once."""
    passes = (config.stop.steps or 0) * config.batch.tokens / corpus.train_tokens
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


def absolute(path: Path) -> Path:
    """The path from the root, without following links."""
    return path.expanduser().absolute()


def study_folder(path: Path) -> Path:
    """The folder of a study from the root; raises ``ConfigError`` where its name is no text, as every store needs."""
    from golfray.config.errors import ConfigError

    folder = absolute(path)
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("is a folder whose name is not UTF-8, so no store can hold it", file=str(folder)) from error
    return folder
