"""Processes that came of a test, known by a mark in the environment that they were started with."""

import os
import pathlib

MARK = "GOLFRAY_TEST_MARK"


def marked_processes(mark: str) -> list[str]:
    """Number and command line of each other process that was started with ``MARK`` set to ``mark`` and still lives."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if folder.name != str(os.getpid()) and mark.encode() in (folder / "environ").read_bytes():
                found.append(f"{folder.name} {(folder / 'cmdline').read_text()}".replace("\0", " ").strip())
        except OSError:
            continue  # it ended while we looked, or is not ours
    return found
