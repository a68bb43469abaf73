"""Scoring an artifact that lies on disk: reload it without trust, check the cap, measure bits per byte."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from golfray.config.errors import ConfigError
from golfray.config.resolve import Layer
from golfray.config.schema import Config
from golfray.core.settings import AveragingSettings, ExportSettings, RunSettings, settings_from_dict

if TYPE_CHECKING:
    from golfray.core.score import Score

# No trial writes more: the one is a billion parameters, the other many times a whole configuration.
_LARGEST_ARTIFACT = 2**30
_LARGEST_SETTINGS = 2**20


class ScoreError(Exception):
    """An artifact, or what is needed to read it, that cannot be used; the message says why and what to do."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class ScoredFile:
    """What an artifact is worth: bits per byte, nats per token over ``tokens`` and ``text_bytes``, and its size.

    ``metrics``: what the settings have measured besides, under a trial's names: ``bpb/sliding`` and its like.
    """

    bits_per_byte: float
    loss: float
    tokens: int
    text_bytes: int
    bytes_code: int
    bytes_model: int
    cap_bytes: int
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def fits(self) -> bool:
        """Whether code and model together are within the cap."""
        return self.bytes_code + self.bytes_model <= self.cap_bytes

    def lines(self) -> list[str]:
        """For a person."""
        total = self.bytes_code + self.bytes_model
        margin = self.cap_bytes - total
        code = f"code {self.bytes_code:,}" if self.bytes_code else "code 0 (the settings do not say: not counted)"
        verdict = f"fits, {margin:,} bytes to spare" if self.fits else f"INFEASIBLE: {-margin:,} bytes over"
        return [
            *self.score_lines(),
            f"bytes/total {total:,} = {code} + model {self.bytes_model:,} of a cap of {self.cap_bytes:,}: {verdict}",
        ]

    def score_lines(self) -> list[str]:
        """What it scored, for a person."""
        return [
            f"bpb/roundtrip {self.bits_per_byte:.5f}  val_loss/roundtrip {self.loss:.5f} "
            f"({self.tokens:,} tokens, {self.text_bytes:,} bytes)",
            *self._sliding_lines(),
        ]

    def _sliding_lines(self) -> list[str]:
        share = self.metrics.get("sliding/scored_share")
        if share is None:
            return []
        if "bpb/sliding" not in self.metrics:
            return [f"bpb/sliding none: evaluation.sliding_seconds were over at {share:.0%} of the text"]
        bpb, loss = (self.metrics[f"{name}/sliding"] for name in ("bpb", "val_loss"))
        return [f"bpb/sliding {bpb:.5f}  val_loss/sliding {loss:.5f}"]


def score_file(artifact: Path, settings_path: Path | None, data: Path | None, tokenizer: Path | None) -> ScoredFile:
    """Score ``artifact`` on one process of this machine.

    The settings it was trained with say the model's shape; they are looked for in settings.json beside the artifact
    where no path is given. ``data`` and ``tokenizer`` replace the settings' own. Raises :class:`ScoreError` for files
    that are missing or not what they should be; the artifact is never unpickled and its sizes are bounded first.
    """
    content = _read(artifact, _LARGEST_ARTIFACT)
    settings = read_settings(settings_path or artifact.parent / "settings.json")
    changes = {"folder": data, "tokenizer": tokenizer}
    chosen = {name: str(path.absolute()) for name, path in changes.items() if path is not None}
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, **chosen))
    return _score(artifact, content, settings)


def score_artifact(artifact: Path, settings: RunSettings) -> ScoredFile:
    """Score ``artifact`` as :func:`score_file` does, under settings that are known."""
    return _score(artifact, _read(artifact, _LARGEST_ARTIFACT), settings)


def _read(path: Path, largest: int) -> bytes:
    """The content of a file that may claim to be of any size."""
    try:
        with open(path, "rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise ScoreError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > largest:
        raise ScoreError(f"{path}: is larger than {largest:,} bytes, as no such file is")
    return content


def read_settings(path: Path) -> RunSettings:
    """Settings of a trial, every value checked as that of a configuration would be; raises :class:`ScoreError`."""
    if not path.exists():
        raise ScoreError(f"{path}: no such file; give the artifact's settings with --settings")
    try:
        values = json.loads(_read(path, _LARGEST_SETTINGS).decode("utf-8"))
        settings = settings_from_dict(values)
        _check_settings(dataclasses.asdict(settings))
    except (TypeError, ValueError, AttributeError, ConfigError) as error:
        raise ScoreError(f"{path}: not the settings of a trial: {error}") from error
    return settings


def _check_settings(values: dict[str, Any]) -> None:
    """Raise ``ConfigError`` or ``ValueError`` on a value, or a combination, that no trial can have had."""
    bytes_code = values.pop("bytes_code")
    if isinstance(bytes_code, bool) or not isinstance(bytes_code, int) or bytes_code < 0:
        raise ValueError(f"bytes_code must be an integer >= 0, got {bytes_code!r}")
    if not isinstance(values.pop("clock_trace"), str):
        raise ValueError("clock_trace must be text")
    Layer("settings", values).flat()
    try:
        Config.model_validate({**values, "preset": "", "scale": "full", "workers": 1})
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error


def further_metrics(artifact: Path, settings: RunSettings) -> dict[str, float]:
    """What the settings have measured of an artifact besides its score; nothing where they ask for nothing.

    Raises :class:`ScoreError` as :func:`score_file` does.
    """
    if settings.evaluation.sliding_stride is None:
        return {}
    return _Loaded(artifact, _read(artifact, _LARGEST_ARTIFACT), settings).further()


def _score(artifact: Path, content: bytes, settings: RunSettings) -> ScoredFile:
    loaded = _Loaded(artifact, content, settings)
    score = loaded.score()
    return ScoredFile(
        bits_per_byte=score.bits_per_byte,
        loss=score.loss,
        tokens=score.tokens,
        text_bytes=score.bytes,
        bytes_code=settings.bytes_code,
        bytes_model=len(content),
        cap_bytes=settings.cap_bytes,
        metrics=loaded.further(),
    )


class _Loaded:
    """An artifact's model on this machine's device, and what it is scored on."""

    def __init__(self, artifact: Path, content: bytes, settings: RunSettings) -> None:
        from golfray.core.byte_table import load_byte_table
        from golfray.core.gang import join_gang
        from golfray.core.model import build_model
        from golfray.core.runtime import choose_runtime, prepare_device
        from golfray.core.shards import list_shards, load_validation_tokens
        from golfray.ship.foreign_artifact import foreign_state

        self.settings, self.gang = settings, join_gang(settings.runtime.device)
        dtype = choose_runtime(settings, self.gang).dtype
        prepare_device(self.gang, dtype)
        try:
            state = foreign_state(content, settings.model)
        except ValueError as error:
            raise ScoreError(f"{artifact}: {error}") from error
        self.model = build_model(settings.model, dtype, self.gang.device)
        self.model.load_state_dict(state)
        try:
            self.tokens = load_validation_tokens(list_shards(Path(settings.data.folder), "val"), settings.batch.seq_len)
        except (OSError, ValueError) as error:
            raise ScoreError(f"{error}; give the validation data with --data and --tokenizer") from error
        try:
            self.table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
        except (OSError, ValueError, RuntimeError) as error:
            raise ScoreError(
                f"{settings.data.tokenizer}: no tokenizer of this model: {error}; give the shards' own with --tokenizer"
            ) from error

    def score(self) -> Score:
        from golfray.core.score import score_model

        return score_model(self.model, self.tokens, self.table, self.settings.batch, self.gang)

    def further(self) -> dict[str, float]:
        """As a trial does it; the export is done, so its codec is none of this."""
        from golfray.core.frontier import FrontierParts

        plain = dataclasses.replace(self.settings, export=ExportSettings(), averaging=AveragingSettings())
        parts = FrontierParts(plain, self.gang)
        parts.begin(self.model)
        return parts.evaluate(self.tokens, self.table, lambda phase: None)
