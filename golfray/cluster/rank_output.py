"""What a rank prints while it runs a job goes to the job's folder: its own words, and those of native code too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_STANDARD_FILES = (1, 2)


def rank_log(folder: Path, rank: int) -> Path:
    """Where rank ``rank`` of the job in ``folder`` leaves what it printed."""
    return folder / f"rank-{rank}.log"


@contextlib.contextmanager
def output_into(path: Path) -> Iterator[None]:
    """Send this process's standard output and standard error to the end of ``path``.

    File descriptors are exchanged, not Python's objects, so what C++ prints and the last words of the fault handler
    arrive as well. Raises ``OSError`` where the file cannot be opened.
    """
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    _flush()
    kept = {number: os.dup(number) for number in _STANDARD_FILES}
    try:
        for number in _STANDARD_FILES:
            os.dup2(log, number)
        os.close(log)
        yield
    finally:
        _flush()
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)


def _flush() -> None:
    """What is still in a buffer belongs to the file that is open now."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
