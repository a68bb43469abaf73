"""A copy at home of a study that another machine runs: when it may be brought up to date, and what it lacks then.

The log is the only truth of both. What the log at home has must be how the other one begins, to the byte: otherwise the
two are different studies, or one that was gone on with in two places, and neither may take the other's name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from pathlib import Path

from golfray.config.errors import ConfigError
from golfray.findings import Finding, error
from golfray.sweep.events import LOG_NAME
from golfray.sweep.records import StudyRecord
from golfray.sweep.study_folder import DRIVER_NAME

_KNOWN = "settings and score of its trial are in the log all the same"
_ELSEWHERE = "nothing was changed; --study-dir names another folder for the copy"


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A file that the log names: its ``size`` in bytes and its SHA-256, None where the log does not say."""

    path: Path
    size: int | None
    sha256: str | None


def log_at_home(folder: Path) -> bytes:
    """The log that a folder has, b"" where it is empty or not there yet.

    Raises ``ConfigError`` where the folder holds something else than a study.
    """
    log = folder / LOG_NAME
    if log.is_file():
        return log.read_bytes()
    if os.path.lexists(log):
        raise ConfigError(f"its {LOG_NAME} is no regular file; {_ELSEWHERE}", file=str(folder))
    try:
        # A process that was killed as it began leaves its signature and nothing else.
        inside = [path for path in folder.iterdir() if path.name != DRIVER_NAME]
    except FileNotFoundError:
        return b""
    except NotADirectoryError:
        raise ConfigError(f"is no folder; {_ELSEWHERE}", file=str(folder)) from None
    if inside:
        raise ConfigError(f"holds something that is no study ({inside[0].name}); {_ELSEWHERE}", file=str(folder))
    return b""


def check_goes_on(home: bytes, far: bytes, folder: Path, source: str) -> None:
    """Raise ``ConfigError`` where the log ``far``, of ``source``, does not begin with ``home``, that of ``folder``."""
    if far.startswith(home):
        return
    if home.startswith(far):
        there, here = far.count(b"\n"), home.count(b"\n")
        raise ConfigError(
            f"its log goes on where that of {source} ends ({here} records here, {there} there): the study was resumed "
            f"here; {_ELSEWHERE}",
            file=str(folder),
        )
    pairs = itertools.zip_longest(home.split(b"\n"), far.split(b"\n"))
    line = next(number for number, (here, there) in enumerate(pairs, 1) if here != there)
    raise ConfigError(
        f"its log differs from that of {source} from line {line} on: it is another study, or one that was gone on with "
        f"in both places; {_ELSEWHERE}",
        file=str(folder),
    )


def artifacts_of(record: StudyRecord, folder: Path) -> list[Artifact]:
    """The files that a log names, below the study's ``folder``."""
    found = []
    for attempt in (attempt for trial in record.trials for attempt in trial.attempts):
        outcome = attempt.outcome
        if outcome is None or outcome.artifact is None or attempt.folder is None:
            continue
        size = outcome.metrics.get("bytes/model")
        path = folder / attempt.folder / outcome.artifact
        found.append(Artifact(path, None if size is None else int(size), outcome.artifact_sha256))
    return found


def why_not_whole(artifact: Artifact) -> Finding | None:
    """What is wrong with a file that the log names; None where it is there as the log has it."""
    path = artifact.path
    try:
        size = path.stat().st_size
        digest = None
        if artifact.sha256 is not None and artifact.size in (None, size):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return error("artifact_missing", path, "is in the log, and not in the folder that it was pulled from", _KNOWN)
    except OSError as problem:
        return error("artifact_unreadable", path, f"cannot be read: {problem.strerror}", "mend it and pull again")
    again = "delete it here and pull again"
    if artifact.size is not None and size != artifact.size:
        return error("artifact_size", path, f"has {size:,} bytes, and {artifact.size:,} in the log", again)
    if digest is not None and digest != artifact.sha256:
        return error("artifact_content", path, "has another SHA-256 than the log says", again)
    return None
