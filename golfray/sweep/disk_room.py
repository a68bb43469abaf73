"""How much a study writes, and whether the disks have room for all of it before it begins.

The sizes of logs and of MLflow's database are those of studies that were measured (docs/log.md, "What a study takes");
checkpoints and artifacts follow from the model.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from golfray.config.sizes import size_text
from golfray.core.settings import ModelSettings, RunSettings
from golfray.sweep.knobs import Choice
from golfray.sweep.space import Space

if TYPE_CHECKING:
    from golfray.sweep.work_left import WorkLeft

MIB = 1024 * 1024

# Bytes. A point of the curve is in the event log, in curve.jsonl and as some metrics in MLflow's database.
_EVENTS_A_POINT, _CURVE_A_POINT, _MLFLOW_A_POINT = 330, 250, 1_800
_EVENTS_A_TRIAL, _FILES_A_TRIAL, _MLFLOW_A_TRIAL = 8_000, 24_000, 25_000
_RANK_LOG = 40_000
# Of a search: its front, whole in a file and in short in the event log.
_FRONT = 60_000
_MLFLOW_EMPTY = 1_300_000
_RAY, _RAY_A_TRIAL = 1_000_000, 35_000
# Ray's session and its spilled objects, and what torch compiles.
TEMPORARY_BYTES = 150 * MIB
_TENSOR_HEADER = 600

# Attempts that are lost and made again, of which the files stay. A study of which more than half fail gives up.
_RETRIED_SHARE = 0.1

# Left free beside what is written: others write too, and file systems get slow and strange when they are full.
_RESERVE, _RESERVE_SHARE = 16 * MIB, 0.1


_ELSEWHERE = {
    "the study": "another folder with --study-dir",
    "MLflow's store": "another store with --tracking-uri",
    "temporary files": "another one with TMPDIR",
}


class DiskTooSmall(RuntimeError):
    """A disk has no room for the whole study; the message has need, room, place and remedy."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class DiskNeed:
    """Bytes that a study writes, by the place where it writes them.

    ``parts``: below its own folder, by what they are. ``temporary``: until it ends. ``elsewhere``: into a store of
    MLflow's that is not the study's own.
    """

    parts: dict[str, int]
    temporary: int
    elsewhere: int = 0

    @property
    def study(self) -> int:
        """Bytes below the study's folder."""
        return sum(self.parts.values())


@dataclasses.dataclass(frozen=True)
class StudyDisk:
    """What a study needs for ``trials`` trials, ``retries`` of which are made once more.

    ``bounded``: whether these are the most that its budget allows; otherwise they are a guess. ``an_attempt``: bytes
    below the study's folder of one attempt at a trial.
    """

    need: DiskNeed
    trials: int
    retries: int
    bounded: bool
    an_attempt: int


def study_disk(space: Space, left: WorkLeft, lanes: int, *, own_store: bool) -> StudyDisk:
    """What the trials that are ``left`` of a study write in at most ``lanes`` lanes, each as large as they may get.

    A trial that ends early writes less. ``own_store``: whether MLflow's store is the study's own.
    """
    settings, workers = _largest(space), space.base.config.workers
    most = _most_trials(space, left, lanes)
    trials = _guessed_trials(space, left, lanes) if most is None else most
    retries = math.ceil(_RETRIED_SHARE * trials)
    need, one, none = (
        disk_need(settings, attempts, workers, own_store=own_store) for attempts in (trials + retries, 1, 0)
    )
    return StudyDisk(need, trials, retries, most is not None, one.study - none.study)


def disk_need(settings: RunSettings, attempts: int, workers: int, *, own_store: bool) -> DiskNeed:
    """What ``attempts`` at trials of these ``settings`` write, artifacts counted as if they did not compress."""
    parameters, tensors = _counts(settings.model)
    points = settings.runtime.log_points
    artifact = _artifact_bytes(settings)
    one = {
        "checkpoints": 4 * parameters + _TENSOR_HEADER * tensors,
        "artifacts": artifact,
        "curves and logs": _FILES_A_TRIAL
        + _RANK_LOG * workers
        + _EVENTS_A_TRIAL
        + (_FRONT if settings.export.search is not None else 0)
        + (_EVENTS_A_POINT + _CURVE_A_POINT) * points,
        "Ray's logs": _RAY_A_TRIAL,
    }
    parts = {name: attempts * size for name, size in one.items()}
    parts["Ray's logs"] += _RAY
    # MLflow keeps a copy of every artifact.
    database = _MLFLOW_EMPTY + attempts * (_MLFLOW_A_TRIAL + _MLFLOW_A_POINT * points)
    copies = attempts * artifact
    if not own_store:
        return DiskNeed(parts, TEMPORARY_BYTES, database + copies)
    parts["artifacts"] += copies
    return DiskNeed(parts | {"MLflow's database": database}, TEMPORARY_BYTES)


def _most_trials(space: Space, left: WorkLeft, lanes: int) -> int | None:
    """The largest number of trials that are left; None where nothing limits it.

    Time does where a trial cannot end before its own seconds of training are over: as if it were nothing but that.
    """
    limits = []
    if left.asks is not None:
        limits.append(len(left.unfinished) + left.asks)
    if left.seconds < math.inf and space.base.config.stop.steps is None:
        limits.append(_by_time(space, left, lanes))
    return min(limits, default=None)


def _guessed_trials(space: Space, left: WorkLeft, lanes: int) -> int:
    """Where trials may end before their seconds are over: as many as if none did, or one a lane without seconds."""
    if space.base.config.stop.seconds is None:
        return len(left.unfinished) + lanes
    return _by_time(space, left, lanes)


def _by_time(space: Space, left: WorkLeft, lanes: int) -> int:
    seconds = space.base.config.stop.seconds
    assert seconds is not None
    return len(left.unfinished) + lanes * math.ceil(max(left.seconds, 0.0) / seconds)


def _largest(space: Space) -> RunSettings:
    """Trial 0's settings with every knob of model and export where it makes the most parameters and bytes."""
    settings = space.base.config.to_run_settings(0)
    for knob in space.knobs:
        section, _, name = knob.path.partition(".")
        if section not in ("model", "export"):
            continue
        values = knob.domain.choices if isinstance(knob.domain, Choice) else (knob.domain.low, knob.domain.high)
        before = getattr(settings, section)
        changed = [before, *(dataclasses.replace(before, **{name: value}) for value in values)]
        some = [dataclasses.replace(settings, **{section: each}) for each in changed]
        settings = max(some, key=lambda each: (_counts(each.model), _artifact_bytes(each)))
    return settings


@functools.cache
def _artifact_bytes(settings: RunSettings) -> int:
    """Bytes of an artifact that is not compressed: integers at one a byte, their steps, and what has 16 or 32 bits."""
    parameters, tensors = _counts(settings.model)
    size = _TENSOR_HEADER * tensors
    if settings.export.format != "flat":
        return size + parameters
    if settings.export.search is not None:
        # The most that a search tries: a table of 16 bits.
        return size + 2 * parameters
    from golfray.core.container import scale_shape
    from golfray.sweep.size import named_shapes
    from golfray.sweep.size_formula import rule_for

    for name, shape in named_shapes(settings.model).items():
        rule = rule_for(name, shape, settings.export)
        elements = math.prod(shape)
        size += elements * rule.bits // 8 if rule.bits > 8 else elements + 2 * math.prod(scale_shape(shape, rule.group))
    return size


@functools.cache
def _counts(model: ModelSettings) -> tuple[int, int]:
    """Parameters and tensors of a model; it takes a second to build a large one."""
    # It takes torch, which whoever only asks for room on a disk can do without.
    from golfray.sweep.size import parameter_shapes

    shapes = parameter_shapes(model)
    return sum(map(math.prod, shapes)), len(shapes)


def check_disk(need: DiskNeed, study_folder: Path, temporary_folder: Path, store: Path | None) -> None:
    """Raise :class:`DiskTooSmall` where a file system has less room than the study needs on it, and a reserve.

    ``store``: MLflow's file or folder; None for a server, whose disk is its own affair. Nothing of these need exist:
    the nearest folder above that does says which file system it would be on.
    """
    wanted: dict[int, tuple[int, list[str], Path]] = {}
    for size, what, folder in (
        (need.study, "the study", study_folder),
        (need.elsewhere, "MLflow's store", store),
        (need.temporary, "temporary files", temporary_folder),
    ):
        if folder is None or not size:
            continue
        place = nearest_folder(folder)
        device = os.stat(place).st_dev
        before, names, first = wanted.get(device, (0, [], folder))
        wanted[device] = before + size, [*names, what], first
    for size, names, folder in wanted.values():
        room = free_bytes(folder)
        least = with_reserve(size)
        if room < least:
            elsewhere = _ELSEWHERE[names[0]]
            raise DiskTooSmall(
                f"{folder}: {' and '.join(names)} need{'s' if len(names) == 1 else ''} {size_text(size)}, "
                f"{size_text(least)} with a reserve, but this disk has {size_text(room)} free; make room, choose "
                f"{elsewhere}, or lower the number of trials"
            )


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write where ``folder`` is or would be."""
    return shutil.disk_usage(nearest_folder(folder)).free


def with_reserve(size: int) -> int:
    """Bytes that must be free where ``size`` bytes are to be written."""
    return size + _RESERVE + int(_RESERVE_SHARE * size)


def nearest_folder(path: Path) -> Path:
    """The path itself, or the nearest above it that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
