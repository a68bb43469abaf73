"""Export and score as stages over files in one folder: what is done already is kept, and nothing is written over.

settings.json says what is asked; the artifact and then export.json come of the first stage, score.json of the second.
Each is written whole or not at all, so a run that was interrupted is gone on with by asking for the same again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from golfray.config.errors import ConfigError
from golfray.core.artifact import sha256_hex, write_atomically
from golfray.core.codec import codec_module
from golfray.core.exporter import export_state
from golfray.core.frontier import FLAT_ARTIFACT, calibration_batches
from golfray.core.gang import join_gang
from golfray.core.gptq import collect_hessians
from golfray.core.model import build_model
from golfray.core.runtime import choose_runtime, prepare_device
from golfray.core.settings import RunSettings, settings_to_json
from golfray.core.shards import TokenStream, list_shards
from golfray.core.trial import Parts
from golfray.ship.artifact_parts import Part, artifact_parts
from golfray.ship.export_source import SETTINGS_NAME
from golfray.ship.foreign_checkpoint import Checkpoint, CheckpointError
from golfray.ship.score_file import ScoredFile, ScoreError, score_artifact

EXPORT_NAME = "export.json"
SCORE_NAME = "score.json"
ARTIFACT_NAMES = {"reference": Parts.artifact_name, "flat": FLAT_ARTIFACT}


@dataclasses.dataclass(frozen=True)
class Exported:
    """What the first stage left: the artifact in ``folder``, its size, and where its bytes go."""

    checkpoint: str
    checkpoint_sha256: str
    artifact: str
    artifact_sha256: str
    bytes_code: int
    bytes_model: int
    cap_bytes: int
    seconds: float
    parts: tuple[Part, ...]

    @property
    def margin(self) -> int:
        """Bytes left under the cap, negative where code and model are over it."""
        return self.cap_bytes - self.bytes_code - self.bytes_model

    def document(self) -> dict[str, Any]:
        """All of it with the sums, for export.json and ``--json``."""
        total = self.bytes_code + self.bytes_model
        return {**dataclasses.asdict(self), "bytes_total": total, "margin": self.margin, "fits": self.margin >= 0}

    def line(self) -> str:
        """For a person."""
        total = self.bytes_code + self.bytes_model
        verdict = f"{self.margin:,} bytes to spare" if self.margin >= 0 else f"INFEASIBLE: {-self.margin:,} bytes over"
        return (
            f"bytes/total {total:,} = code {self.bytes_code:,} + model {self.bytes_model:,} of a cap of "
            f"{self.cap_bytes:,}: {verdict}"
        )


class ExportFolder:
    """The folder of one export of one checkpoint under one set of settings.

    ``beside``: names of files that it may have before. Raises ``ConfigError`` where the folder is there already and of
    anything else, ``CodecMissing`` where the codec is not installed.
    """

    def __init__(
        self, folder: Path, checkpoint: Checkpoint, settings: RunSettings, beside: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.checkpoint, self.settings = folder, checkpoint, settings
        codec_module(settings.export.codec)
        asked, known = settings_to_json(settings), folder / SETTINGS_NAME
        if folder.exists() and (not folder.is_dir() or _others(folder, beside)):
            if not known.is_file() or known.read_text(encoding="utf-8") != asked:
                raise self._taken("settings")
            done = self._read(EXPORT_NAME)
            if done is not None and done["checkpoint_sha256"] != checkpoint.sha256:
                raise self._taken("checkpoint")
        folder.mkdir(parents=True, exist_ok=True)
        if not known.exists():
            write_atomically(known, asked.encode())

    @property
    def artifact(self) -> Path:
        """Where the artifact is written."""
        return self.folder / ARTIFACT_NAMES[self.settings.export.format]

    def export(self, say: Callable[[str], None]) -> Exported:
        """Export the checkpoint, unless that is done; what takes long is told to ``say`` first.

        Raises :class:`CheckpointError` where the weights cannot be exported so, ``ConfigError`` where an artifact that
        was written is another now, :class:`ScoreError` where there are no training tokens to calibrate GPTQ on.
        """
        done = self._read(EXPORT_NAME)
        if done is not None:
            exported = _exported(done)
            if not self.artifact.is_file() or sha256_hex(self.artifact.read_bytes()) != exported.artifact_sha256:
                raise ConfigError("is not the artifact that was exported here", file=str(self.artifact))
            say(f"{self.artifact}: exported before, and kept")
            return exported
        begun = time.monotonic()
        state = self.checkpoint.state(self.settings.model)
        try:
            content = self._artifact_of(state, say)
        except ValueError as error:
            raise CheckpointError(f"{self.checkpoint.path}: {error}") from error
        return self.keep(content, time.monotonic() - begun)

    def keep(self, content: bytes, seconds: float) -> Exported:
        """Write an artifact of the checkpoint under these settings, and what is to be said of it."""
        write_atomically(self.artifact, content)
        settings = self.settings
        exported = Exported(
            checkpoint=str(self.checkpoint.path.absolute()),
            checkpoint_sha256=self.checkpoint.sha256,
            artifact=self.artifact.name,
            artifact_sha256=sha256_hex(content),
            bytes_code=settings.bytes_code,
            bytes_model=len(content),
            cap_bytes=settings.cap_bytes,
            seconds=seconds,
            parts=artifact_parts(content, settings.export),
        )
        self._write(EXPORT_NAME, exported.document())
        return exported

    def score(self) -> ScoredFile:
        """Reload the artifact as one from anywhere and score it on validation, unless that is done.

        Raises :class:`ScoreError` where there is no validation data.
        """
        done = self._read(SCORE_NAME)
        if done is not None:
            return ScoredFile(**done)
        return self.keep_score(score_artifact(self.artifact, self.settings))

    def keep_score(self, scored: ScoredFile) -> ScoredFile:
        """Write what the artifact scores."""
        self._write(SCORE_NAME, dataclasses.asdict(scored))
        return scored

    def _artifact_of(self, state: dict[str, torch.Tensor], say: Callable[[str], None]) -> bytes:
        export = self.settings.export
        if export.format == "reference":
            return Parts().export_state(state, export)
        hessians = calibrate(state, self.settings, say) if export.gptq else None
        return export_state(state, export, hessians, say)

    def _taken(self, what: str) -> ConfigError:
        return ConfigError(
            f"exists already, of other {what}, and is never written over; choose another with --out",
            file=str(self.folder),
        )

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError("is damaged; remove it to have it made again", file=str(path)) from error
        return dict(found)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        write_atomically(self.folder / name, json.dumps(document, indent=1).encode())


def calibrate(
    state: dict[str, torch.Tensor], settings: RunSettings, say: Callable[[str], None]
) -> dict[str, torch.Tensor]:
    """Hessians of a model over the first ``export.gptq_batches`` micro-batches of its training tokens, as in a trial.

    Raises :class:`ScoreError` where there is no training data.
    """
    gang = join_gang(settings.runtime.device)
    dtype = choose_runtime(settings, gang).dtype
    prepare_device(gang, dtype)
    try:
        stream = TokenStream(list_shards(Path(settings.data.folder), "train"))
    except (OSError, ValueError) as error:
        raise ScoreError(f"{error}; export.gptq calibrates on training tokens: --set data.folder=FOLDER") from error
    model = build_model(settings.model, dtype, gang.device)
    model.load_state_dict(state)
    tokens = settings.export.gptq_batches * (settings.batch.tokens // settings.batch.slices)
    say(f"GPTQ: calibrating on {tokens:,} training tokens")
    return collect_hessians(model, calibration_batches(settings, stream, gang.device))


def _others(folder: Path, known: tuple[str, ...]) -> bool:
    """Whether a folder has files of other names."""
    return any(path.name not in known for path in folder.iterdir())


def _exported(document: dict[str, Any]) -> Exported:
    fields = {field.name: document[field.name] for field in dataclasses.fields(Exported)}
    parts = tuple(Part(**{**part, "bits": tuple(part["bits"])}) for part in fields.pop("parts"))
    return Exported(**fields, parts=parts)
