"""What `golfray doctor` finds about the disks of a study, on the machine from which it is driven."""

from __future__ import annotations

import os
from pathlib import Path

from golfray.config.sizes import size_text
from golfray.findings import Finding, error, fine
from golfray.sweep.disk_room import DiskNeed, DiskTooSmall, check_disk, free_bytes, nearest_folder

# Least room for a study of which nothing is known: its log, MLflow's empty store, some small checkpoints.
_LEAST = DiskNeed({"a small study": 200_000_000}, 0)

_ELSEWHERE = "choose another with --study-dir"


def check(study_folder: Path, need: DiskNeed | None, temporary_folder: Path, store: Path | None) -> list[Finding]:
    """Whether the disks have room for ``need`` (None: for a small study). Nothing is written.

    ``store``: MLflow's file or folder; None for a server.
    """
    place = nearest_folder(study_folder)
    if not place.is_dir():
        return [error("disk", study_folder, f"cannot be made: {place} is no folder", _ELSEWHERE)]
    if not os.access(place, os.W_OK | os.X_OK):
        return [error("disk", study_folder, f"cannot be made or written: {place} may only be read", _ELSEWHERE)]
    told = f"{size_text(free_bytes(study_folder))} free"
    try:
        check_disk(need or _LEAST, study_folder, temporary_folder, store)
    except DiskTooSmall as problem:
        return [error("disk", "", str(problem), "")]
    if need is not None:
        told += f", {size_text(need.study)} needed for the study"
    return [fine("disk", study_folder, told)]
