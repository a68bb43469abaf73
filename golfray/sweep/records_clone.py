"""Public records from a clone of their repository: a folder each, with submission.json, logs and a script.

There is no schema for these files, and many are wrong. A record that cannot be used is skipped with one line; nothing
outside the clone is read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError, shown
from golfray.sweep.observation import Observation, Observations, published_observations
from golfray.sweep.record_hyperparameters import Logged, read_log, script_defaults, settings_of

SUBMISSION = "submission.json"
SCRIPT = "train_gpt.py"

# Some records keep their logs in a folder of this name.
_LOGS = "logs"

_LARGEST_BYTES = 16_000_000
# Bits per byte: guessing evenly among 1,024 tokens is 4.1, and no model of text comes near a half.
_LEAST_BPB, _MOST_BPB = 0.5, 8.0
_MOST_ARTIFACT_BYTES = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Clone:
    """The records of a clone, and a line for each that was skipped."""

    observations: Observations
    skipped: tuple[str, ...]


class _Skipped(Exception):
    """Why a record is not used."""


def read_clone(root: Path) -> Clone:
    """All records below ``root``, which is the clone or its folder ``records``, in the order of their paths.

    A record that golfray ships numbers of has its settings from there, as far as its own logs say nothing else. Raises
    ``ConfigError`` where there is no folder of records.
    """
    records = root / "records" if (root / "records").is_dir() else root
    if not records.is_dir():
        raise ConfigError("is no folder; name a clone of the parameter-golf repository", file=str(root))
    published = published_observations()
    known = {record.name: record for record in published.records}
    found: dict[str, Observation] = {}
    skipped = []
    for folder in _record_folders(records):
        name = _text(str(folder.relative_to(records)))
        try:
            record = _read(folder, records.resolve(), name, known.get(folder.name))
        except _Skipped as why:
            skipped.append(f"{name}: {why}")
            continue
        if record.id in found:
            record = dataclasses.replace(record, id=name)
        found[record.id] = record
    if not found and not skipped:
        raise ConfigError(
            f"has no {SUBMISSION} in any folder; name a clone of the parameter-golf repository", file=str(root)
        )
    source = f"clone {_text(str(root))}"
    observations = Observations(source, published.stock_bpb, published.stock_runs, tuple(found.values()))
    return Clone(observations, tuple(skipped))


def _record_folders(records: Path) -> Iterator[Path]:
    """Folders of records: directly below, or one deeper in a folder of a track."""
    for folder in _folders(records):
        if folder.is_symlink() or _looks_like_record(folder):
            yield folder
        else:
            yield from _folders(folder)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted((path for path in parent.iterdir() if path.is_dir()), key=lambda path: os.fsencode(path))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(parent)) from error


def _looks_like_record(folder: Path) -> bool:
    return any((folder / name).exists() for name in (SUBMISSION, SCRIPT)) or bool(_log_names(folder))


def _logs(folder: Path) -> list[Path]:
    """The training logs of a record."""
    return [place / name for place in (folder, folder / _LOGS) for name in _log_names(place)]


def _log_names(folder: Path) -> list[str]:
    """Names in ``folder`` that a training log may have."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if name.endswith(".log") or (name.startswith("train") and name.endswith(".txt"))]


def _read(folder: Path, root: Path, name: str, known: Observation | None) -> Observation:
    if folder.is_symlink():
        raise _Skipped("is a link, which is not followed")
    if not (folder / SUBMISSION).exists():
        raise _Skipped(f"{SUBMISSION} is missing")
    submission = _submission(_content(folder / SUBMISSION, root))
    bpb, runs = _score(submission)
    size = _size(submission)
    logs = [read_log(_content(log, root)) for log in _logs(folder)]
    settings, beyond = _settings(logs, submission, folder, root, known)
    if not settings:
        raise _Skipped(f"neither a log nor {SCRIPT} says what it ran with")
    beyond = [*(known.beyond if known is not None else ("a script of its own",)), *beyond]
    track = name.partition("/")[0] if "/" in name else ""
    if track and "10min" not in track:
        beyond.append(f"track: {track}")
    identity = known.id if known is not None else name
    return Observation(identity, _text(folder.name), bpb, runs, size, settings, tuple(beyond))


def _settings(
    logs: list[Logged], submission: dict[str, Any], folder: Path, root: Path, known: Observation | None
) -> tuple[dict[str, Any], list[str]]:
    """What the record ran with, and what is doubtful about that."""
    names = dict.fromkeys(name for log in logs for name in log.values)
    said = {name: [log.values[name] for log in logs if name in log.values] for name in names}
    disputed = [name for name, values in said.items() if any(value != values[0] for value in values)]
    logged = {name: values[0] for name, values in said.items() if name not in disputed}
    steps = _steps(logs, submission)
    defaults = {}
    if known is None and (folder / SCRIPT).exists():
        defaults = script_defaults(_content(folder / SCRIPT, root))
    try:
        own = settings_of(logged, steps)
        # The shares that follow from a default are defaults too.
        below = dict(known.settings) if known is not None else settings_of(defaults, steps)
        disputed_paths = settings_of({name: said[name][0] for name in disputed}, steps).keys()
    except ConfigError as error:
        raise _Skipped(error.message) from error
    settings = {path: value for path, value in (below | own).items() if path not in disputed_paths - own.keys()}
    beyond = []
    assumed = sorted(settings.keys() - own.keys()) if known is None else []
    if assumed:
        beyond.append(f"defaults of its script, which its environment may have overridden: {', '.join(assumed)}")
    if disputed_paths:
        beyond.append(f"its logs disagree: {', '.join(sorted(disputed_paths))}")
    return settings, beyond


def _content(path: Path, root: Path) -> str:
    """A file's text. Raises :class:`_Skipped` where it is no such file, leads out of the clone, or is no text."""
    name = _text(path.name)
    try:
        if not path.resolve(strict=True).is_relative_to(root):
            raise _Skipped(f"{name} is a link that leads out of the clone")
        if not path.is_file():
            raise _Skipped(f"{name} is no regular file")
        with open(path, "rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise _Skipped(f"{name} cannot be read: {why}") from error
    if len(content) > _LARGEST_BYTES:
        raise _Skipped(f"{name} is larger than {_LARGEST_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Skipped(f"{name} is not UTF-8 text (byte {error.start})") from error


def _submission(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Skipped(f"{SUBMISSION} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise _Skipped(f"{SUBMISSION} is no JSON object")
    return values


def _seeds(submission: dict[str, Any]) -> list[dict[str, Any]]:
    """What is said of single seeds, in either of the two forms in which records say it."""
    results = submission.get("seed_results")
    entries = list(results.values()) if isinstance(results, dict) else results
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _score(submission: dict[str, Any]) -> tuple[float, int]:
    """Mean over all seeds where they are listed, since the headline may be the best of them; and how many runs."""
    scores = [_bpb(entry["val_bpb"]) for entry in _seeds(submission) if "val_bpb" in entry]
    if scores:
        return statistics.fmean(scores), len(scores)
    if "val_bpb" not in submission:
        raise _Skipped("val_bpb is missing")
    seeds = submission.get("seeds")
    return _bpb(submission["val_bpb"]), max(1, len(seeds)) if isinstance(seeds, list | dict) else 1


def _bpb(value: Any) -> float:
    if not _is_number(value) or not _LEAST_BPB <= value <= _MOST_BPB:
        raise _Skipped(f"val_bpb must be a number from {_LEAST_BPB:g} to {_MOST_BPB:g}, got {shown(value)}")
    return float(value)


def _size(submission: dict[str, Any]) -> int | None:
    """The largest size that is said of code and model together; None where none is."""
    names = ("bytes_total", "artifact_bytes_max", "artifact_bytes")
    said = [submission[name] for name in names if submission.get(name) is not None][:1]
    said += [entry["artifact_bytes"] for entry in _seeds(submission) if entry.get("artifact_bytes") is not None]
    for value in said:
        if not _is_number(value) or not 0 < value <= _MOST_ARTIFACT_BYTES:
            raise _Skipped(f"its size must be above 0 and at most {_MOST_ARTIFACT_BYTES:,} bytes, got {shown(value)}")
    return max((int(value) for value in said), default=None)


def _steps(logs: list[Logged], submission: dict[str, Any]) -> float | None:
    """Mean number of steps over the runs."""
    said: list[Any] = [entry.get("steps") for entry in _seeds(submission)] + [submission.get("step_stop")]
    counts = [log.steps for log in logs if log.steps] or [value for value in said if _is_number(value) and value > 0]
    return statistics.fmean(counts) if counts else None


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _text(name: str) -> str:
    """A name that any file can hold: what is not UTF-8 in it is written out."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
