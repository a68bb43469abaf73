"""The files that trials read, as the driver sees them, and whether a node has the same.

A trial that finds a shard missing ends in a crash minutes later, once for every trial; one that finds another shard of
the same size would train on other text and say nothing.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from golfray.cluster.preflight import EnvironmentProblem
from golfray.core.settings import DataSettings
from golfray.data.errors import DataError
from golfray.data.file_sums import sum_of
from golfray.data.manifest import read_manifest

_REMEDY = "put the driver's data at the same path on every node"


@dataclasses.dataclass(frozen=True)
class NeededFile:
    """A file as the driver sees it; ``sha256`` None: its size alone is asked for."""

    path: str
    size: int
    sha256: str | None


def needed_files(data: DataSettings, *, summed: bool) -> list[NeededFile]:
    """The shards and the tokenizer; ``summed``: with the sum of each, from the manifest where the folder has one.

    Without a manifest the driver's own shards are read for it, once (:mod:`golfray.data.file_sums`). Raises
    :class:`EnvironmentProblem` where this machine itself lacks them.
    """
    from golfray.core.shards import list_shards

    folder = Path(data.folder).absolute()
    try:
        shards = [path for split in ("train", "val") for path in list_shards(folder, split)]
        manifest = read_manifest(folder) if summed else None
        known = {} if manifest is None else {entry.file: entry.sha256 for entry in manifest.entries()}
        found = [NeededFile(str(path), path.stat().st_size, _sum(path, known) if summed else None) for path in shards]
        tokenizer = Path(data.tokenizer).absolute()
        return [*found, NeededFile(str(tokenizer), tokenizer.stat().st_size, sum_of(tokenizer))]
    except (OSError, DataError) as error:
        raise EnvironmentProblem(f"the data cannot be read here: {error}") from error


def _sum(path: Path, known: dict[str, str]) -> str:
    return known[path.name] if path.name in known else sum_of(path)


def file_findings(files: list[NeededFile]) -> list[str]:
    """What this node lacks of ``files``, a line each with what to do about it."""
    return [finding for file in files if (finding := _file_finding(file)) is not None]


def _file_finding(file: NeededFile) -> str | None:
    path = Path(file.path)
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{path} has {size:,} bytes, the driver's has {file.size:,}; {_REMEDY}"
        if file.sha256 is not None and sum_of(path) != file.sha256:
            return f"{path} is not the driver's file of that name (sha256); {_REMEDY}"
        if not os.access(path, os.R_OK):
            return f"{path} may not be read by this user; {_REMEDY}"
    except OSError as error:
        return f"{path}: {error.strerror}; {_REMEDY}"
    return None
