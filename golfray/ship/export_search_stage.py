"""The search over a checkpoint's exports as a stage over files; its choice is left as any other export is.

search.json says what is asked. When the search is over, the folder gets the files of :class:`ExportFolder` for the
setting chosen, then the picture, and last front.json, which says that all is done.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError
from golfray.core.artifact import write_atomically
from golfray.core.codec import codec_module
from golfray.core.settings import RunSettings
from golfray.ship.export_source import SETTINGS_NAME
from golfray.ship.export_stages import ARTIFACT_NAMES, EXPORT_NAME, SCORE_NAME, ExportFolder
from golfray.ship.foreign_checkpoint import Checkpoint, CheckpointError
from golfray.ship.score_file import ScoredFile, ScoreError, further_metrics
from golfray.sweep.export_search import SearchPlan, SearchResult, search_exports

SEARCH_NAME = "search.json"
FRONT_NAME = "front.json"
PICTURE_NAME = "front.svg"


class SearchFolder:
    """The folder of one search over the exports of one checkpoint.

    ``settings``: under which the rest is exported and scored; what they say of the settings that a search varies is not
    used. ``steps``: that the checkpoint was trained for, None where it is not known. Raises ``ConfigError`` where the
    folder is there already and of anything else, ``CodecMissing`` where a codec of the plan is not installed.
    """

    def __init__(
        self, folder: Path, checkpoint: Checkpoint, settings: RunSettings, plan: SearchPlan, steps: int | None
    ) -> None:
        self.folder, self.checkpoint, self.settings, self.plan, self.steps = folder, checkpoint, settings, plan, steps
        for codec in plan.space.codecs:
            codec_module(codec)
        asked = {
            "checkpoint_sha256": checkpoint.sha256,
            "steps": steps,
            "plan": dataclasses.asdict(plan),
            "settings": dataclasses.asdict(settings),
        }
        text, known = json.dumps(asked, indent=1), folder / SEARCH_NAME
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if taken and (not known.is_file() or known.read_text(encoding="utf-8") != text):
            raise ConfigError(
                "exists already, of another search or export, and is never written over; choose another with --out",
                file=str(folder),
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not known.exists():
            write_atomically(known, text.encode())

    def search(self, draw: Callable[[SearchResult], str], say: Callable[[str], None]) -> dict[str, Any]:
        """Search, unless that is done; returns the content of front.json.

        That is the result without the artifact, and "export": the :class:`Exported` of the setting chosen, None where
        nothing fits. ``draw`` makes the picture; ``say`` hears a line a stage. Raises :class:`CheckpointError` for
        weights that cannot be exported, :class:`ScoreError` for data that are not there.
        """
        path = self.folder / FRONT_NAME
        if path.exists():
            say(f"{path}: searched before, and kept")
            try:
                return dict(json.loads(path.read_text(encoding="utf-8")))
            except ValueError as error:
                raise ConfigError("is damaged; remove it to have it made again", file=str(path)) from error
        begun = time.monotonic()
        state = self.checkpoint.state(self.settings.model)
        settings = self.settings
        room = settings.cap_bytes - settings.bytes_code
        if room < 1:
            raise ConfigError(f"leaves no byte for the model: the code has {settings.bytes_code:,}", path="cap_bytes")
        try:
            result = search_exports(state, settings, steps=self.steps, max_bytes=room, plan=self.plan, tell=say)
        except OSError as error:
            raise ScoreError(f"{error}; give the data with --set data.folder and data.tokenizer") from error
        except ValueError as error:
            raise CheckpointError(f"{self.checkpoint.path}: {error}") from error
        document = {**result.to_dict(), "export": self._keep(result, time.monotonic() - begun)}
        write_atomically(self.folder / PICTURE_NAME, draw(result).encode())
        write_atomically(path, json.dumps(document, indent=1).encode())
        return document

    def _keep(self, result: SearchResult, seconds: float) -> dict[str, Any] | None:
        """Leave the setting chosen as an export with its score; what an unfinished search left is not in its way."""
        if result.chosen is None or result.validation is None:
            return None
        chosen = dataclasses.replace(self.settings, export=result.chosen.export)
        for name in (SETTINGS_NAME, EXPORT_NAME, SCORE_NAME, PICTURE_NAME, *ARTIFACT_NAMES.values()):
            (self.folder / name).unlink(missing_ok=True)
        folder = ExportFolder(self.folder, self.checkpoint, chosen, beside=(SEARCH_NAME,))
        exported = folder.keep(result.artifact, seconds)
        score = result.validation
        folder.keep_score(
            ScoredFile(
                bits_per_byte=score.bits_per_byte,
                loss=score.loss,
                tokens=score.tokens,
                text_bytes=score.bytes,
                bytes_code=exported.bytes_code,
                bytes_model=exported.bytes_model,
                cap_bytes=exported.cap_bytes,
                metrics=further_metrics(folder.artifact, chosen),
            )
        )
        return exported.document()
