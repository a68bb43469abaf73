"""``golfray logs``: what the ranks of an attempt printed, and the stacks of those that hung."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError
from golfray.report.lookup import FoundTrial, load_trial
from golfray.sweep.trial_record import AttemptRecord

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


class LogTail:
    """What is added to the logs of an attempt, as it is added: of all ranks, with the stacks, or of one ``rank``.

    The attempt is the last one that the trial has now, or number ``attempt``. Raises ``ConfigError`` where there is no
    such trial or attempt, or it cannot run.
    """

    def __init__(self, text: str, rank: int | None = None, attempt: int | None = None) -> None:
        self._text, self._rank = text, rank
        found, chosen = _attempt_of(text, attempt)
        self._number = chosen.number
        self.folder = found.study.folder / str(chosen.folder)
        self._read: dict[Path, int] = {}

    @property
    def ended(self) -> bool:
        """Whether the study's log has the attempt's end."""
        return _attempt_of(self._text, self._number)[1].outcome is not None

    def more(self, *, whole: bool = True) -> list[tuple[str, str]]:
        """(file, text) of what was added since the last call; with ``whole`` no line before it has its end."""
        found = []
        for path in sorted(self.folder.glob("rank-*.log" if self._rank is None else f"rank-{self._rank}.log")):
            found += self._more_of(path, whole)
        if self._rank is None:
            found += self._more_of(self.folder / STACKS, whole)
        return found

    def _more_of(self, path: Path, whole: bool) -> list[tuple[str, str]]:
        if not path.is_file():
            return []
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._read.get(path, 0):
                self._read[path] = 0  # it was cut, and begins anew
            file.seek(self._read.get(path, 0))
            added = file.read()
        if whole:
            added = added[: added.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(added)
        return [(path.name, added.decode(errors="replace"))] if added else []


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
    found, chosen = _attempt_of(text, attempt)
    folder = found.study.folder / str(chosen.folder)
    logs = {int(match[1]): path for path in folder.glob("rank-*.log") if (match := _RANK_LOG.fullmatch(path.name))}
    if not logs:
        raise ConfigError("has no rank-<n>.log: its ranks printed nothing, or have not started yet", file=str(folder))
    if rank is None:
        stacks = [folder / STACKS] if (folder / STACKS).is_file() else []
        return TrialLog(folder, (*(logs[number] for number in sorted(logs)), *stacks))
    if rank not in logs:
        raise ConfigError(f"has no log of rank {rank}; it has ranks {', '.join(map(str, sorted(logs)))}", file=text)
    return TrialLog(folder, (logs[rank],))


def _attempt_of(text: str, attempt: int | None) -> tuple[FoundTrial, AttemptRecord]:
    """The trial that ``text`` names, and its last attempt or number ``attempt``. Raises ``ConfigError``."""
    found = load_trial(text)
    attempts = {record.number: record for record in found.trial.attempts}
    if not attempts or found.trial.is_refused:
        raise ConfigError("never ran, so it printed nothing", file=text)
    chosen = attempts.get(max(attempts) if attempt is None else attempt)
    if chosen is None or chosen.folder is None:
        raise ConfigError(f"has no attempt {attempt}; it has {', '.join(map(str, attempts))}", file=text)
    return found, chosen


def _text(file: Path) -> str:
    """A file that a killed process may have left with half a character at its end."""
    if not file.is_file():
        # Whoever opens a pipe waits for its other end, which nobody may ever hold.
        raise ConfigError("is no regular file", file=str(file))
    return file.read_text(encoding="utf-8", errors="replace")
