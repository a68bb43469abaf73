"""``golfray logs``: what the ranks of an attempt printed, and the stacks of those that hung."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError
from golfray.report.lookup import load_trial

# What `golfray train` keeps, which has no ranks apart.
TRAIN_LOG = "train.log"
STACKS = "stacks.txt"
_RANK_LOG = re.compile(r"rank-(\d+)\.log")


@dataclasses.dataclass(frozen=True)
class TrialLog:
    """Files with text of one attempt, or of one ``golfray train``."""

    folder: Path
    files: tuple[Path, ...]

    def document(self) -> dict[str, Any]:
        """The document of the kind "logs"."""
        return {
            "folder": str(self.folder),
            "files": [{"name": file.name, "text": _text(file)} for file in self.files],
        }

    def lines(self) -> list[str]:
        """The text as it is, with all that a terminal would obey; a heading for each file where there are several."""
        lines: list[str] = []
        for file in self.files:
            if len(self.files) > 1:
                lines.append(f"==> {file.name} <==")
            text = _text(file)
            # Nothing else ends a line: a form feed and the like are part of what was printed.
            lines += text.removesuffix("\n").split("\n") if text else []
        return lines


def find_log(text: str, rank: int | None = None, attempt: int | None = None) -> TrialLog:
    """The log of what ``text`` names: a trial, or the folder of a ``golfray train``.

    All ranks and the stacks, or only what ``rank`` printed; of the last attempt, or of number ``attempt``. Raises
    ``ConfigError`` where there is no such trial, attempt, rank or file.
    """
    folder = Path(text)
    if (folder / TRAIN_LOG).is_file():
        if rank is not None or attempt is not None:
            raise ConfigError("has one train.log for all ranks; leave --rank and --attempt out", file=text)
        return TrialLog(folder, (folder / TRAIN_LOG,))
    found = load_trial(text)
    attempts = {record.number: record for record in found.trial.attempts}
    if not attempts or found.trial.is_refused:
        raise ConfigError("never ran, so it printed nothing", file=text)
    chosen = attempts.get(max(attempts) if attempt is None else attempt)
    if chosen is None or chosen.folder is None:
        raise ConfigError(f"has no attempt {attempt}; it has {', '.join(map(str, attempts))}", file=text)
    folder = found.study.folder / chosen.folder
    logs = {int(match[1]): path for path in folder.glob("rank-*.log") if (match := _RANK_LOG.fullmatch(path.name))}
    if not logs:
        raise ConfigError("has no rank-<n>.log: its ranks printed nothing, or have not started yet", file=str(folder))
    if rank is None:
        stacks = [folder / STACKS] if (folder / STACKS).is_file() else []
        return TrialLog(folder, (*(logs[number] for number in sorted(logs)), *stacks))
    if rank not in logs:
        raise ConfigError(f"has no log of rank {rank}; it has ranks {', '.join(map(str, sorted(logs)))}", file=text)
    return TrialLog(folder, (logs[rank],))


def _text(file: Path) -> str:
    """A file that a killed process may have left with half a character at its end."""
    if not file.is_file():
        # Whoever opens a pipe waits for its other end, which nobody may ever hold.
        raise ConfigError("is no regular file", file=str(file))
    return file.read_text(encoding="utf-8", errors="replace")
