"""How much a study writes, and whether the disks have room for all of it before it begins.

The sizes of logs and of MLflow's database are those of studies that were measured (docs/log.md, "What a study takes");
checkpoints and artifacts follow from the model.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path

from golfray.core.settings import RunSettings
from golfray.sweep.size import parameter_shapes
from golfray.sweep.space import Space

MIB = 1024 * 1024

# Bytes. A point of the curve is in the event log, in curve.jsonl and as some metrics in MLflow's database.
_EVENTS_A_POINT, _CURVE_A_POINT, _MLFLOW_A_POINT = 330, 250, 1_800
_EVENTS_A_TRIAL, _FILES_A_TRIAL, _MLFLOW_A_TRIAL = 8_000, 24_000, 25_000
_RANK_LOG = 40_000
_MLFLOW_EMPTY = 1_300_000
_RAY, _RAY_A_TRIAL = 1_000_000, 35_000
# Ray's session and its spilled objects, and what torch compiles.
_TEMPORARY = 150 * MIB
_TENSOR_HEADER = 600

# Left free beside what is written: others write too, and file systems get slow and strange when they are full.
_RESERVE, _RESERVE_SHARE = 16 * MIB, 0.1


class DiskTooSmall(RuntimeError):
    """A disk has no room for the whole study; the message has need, room, place and remedy."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class DiskNeed:
    """Bytes that a study writes: ``parts`` below its folder, by what they are, and ``temporary`` ones until it ends."""

    parts: dict[str, int]
    temporary: int

    @property
    def study(self) -> int:
        """Bytes below the study's folder."""
        return sum(self.parts.values())


def disk_need(settings: RunSettings, trials: int, workers: int) -> DiskNeed:
    """What ``trials`` trials of about these ``settings`` write, artifacts counted as if they did not compress."""
    shapes = parameter_shapes(settings.model)
    parameters, tensors = sum(map(math.prod, shapes)), len(shapes)
    points = settings.runtime.log_points
    artifact = parameters + _TENSOR_HEADER * tensors
    a_trial = {
        "checkpoints": 4 * parameters + _TENSOR_HEADER * tensors,
        # One beside the checkpoint, one among MLflow's artifacts.
        "artifacts": 2 * artifact,
        "curves and logs": _FILES_A_TRIAL
        + _RANK_LOG * workers
        + _EVENTS_A_TRIAL
        + (_EVENTS_A_POINT + _CURVE_A_POINT) * points,
        "MLflow's database": _MLFLOW_A_TRIAL + _MLFLOW_A_POINT * points,
        "Ray's logs": _RAY_A_TRIAL,
    }
    fixed = {"MLflow's database": _MLFLOW_EMPTY, "Ray's logs": _RAY}
    return DiskNeed({name: trials * size + fixed.get(name, 0) for name, size in a_trial.items()}, _TEMPORARY)


def most_trials(space: Space, lanes: int) -> int | None:
    """The largest number of trials that the budget allows in so many lanes; None where nothing limits it.

    By time alone it is the number that would fit if a trial were nothing but its own training.
    """
    if space.trials is not None:
        return space.trials + space.replicates - 1
    seconds = space.base.config.stop.seconds
    if space.minutes is None or seconds is None:
        return None
    return lanes * math.ceil(60 * space.minutes / seconds)


def check_disk(need: DiskNeed, study_folder: Path, temporary_folder: Path) -> None:
    """Raise :class:`DiskTooSmall` where a file system has less room than the study needs on it, and a reserve.

    Neither folder need exist: the nearest one above it that does says which file system it would be on.
    """
    wanted: dict[int, tuple[int, list[str], Path]] = {}
    for size, what, folder in (
        (need.study, "the study", study_folder),
        (need.temporary, "temporary files", temporary_folder),
    ):
        place = nearest_folder(folder)
        device = os.stat(place).st_dev
        before, names, first = wanted.get(device, (0, [], folder))
        wanted[device] = before + size, [*names, what], first
    for size, names, folder in wanted.values():
        room = free_bytes(folder)
        least = with_reserve(size)
        if room < least:
            elsewhere = "another folder with --study-dir" if names[0] == "the study" else "another one with TMPDIR"
            raise DiskTooSmall(
                f"{folder}: {' and '.join(names)} need{'s' if len(names) == 1 else ''} {bytes_words(size)}, "
                f"{bytes_words(least)} with a reserve, but this disk has {bytes_words(room)} free; make room, choose "
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


def bytes_words(size: int) -> str:
    """A size in MiB or GiB, as a person reads it."""
    return f"{size / 1024**3:.1f} GiB" if size >= 1024**3 else f"{size / MIB:.1f} MiB"
