"""Which processes belong to a Ray session of ours, and their end.

Parents do not tell: once the driver has died, what it started belongs to nobody. So every process of a session carries
the session's temporary folder in its environment, and those of Ray's that write their title over it have files open
below that folder. A person who reads a log there does neither.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import psutil  # type: ignore[import-untyped]

# The variable that names the session's temporary folder.
MARK = "GOLFRAY_RAY_FOLDER"

_ROUND_SECONDS = 0.5


def processes_of(temp_folder: Path, spared: Collection[int]) -> list[psutil.Process]:
    """This user's processes of the session that uses ``temp_folder``, but for the process ids in ``spared``."""
    user = psutil.Process().uids().real
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid not in spared and process.uids().real == user and _belongs(process, temp_folder):
                found.append(process)
        except psutil.Error:
            continue  # it ended while we looked, or its owner hides it
    return found


def end_processes(temp_folder: Path, spared: Collection[int], patience_s: float) -> list[psutil.Process]:
    """Kill every process of the session, and those they start meanwhile; returns what ``patience_s`` did not end."""
    rounds = max(1, round(patience_s / _ROUND_SECONDS))
    for _ in range(rounds):
        found = processes_of(temp_folder, spared)
        if not found:
            return []
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue  # it ended by itself, or is found again at the end
        psutil.wait_procs(found, timeout=_ROUND_SECONDS)
    return processes_of(temp_folder, spared)


def _belongs(process: psutil.Process, temp_folder: Path) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    if process.environ().get(MARK) == str(temp_folder):
        return True
    titled = process.name().startswith("ray")
    return titled and any(Path(file.path).is_relative_to(temp_folder) for file in process.open_files())
