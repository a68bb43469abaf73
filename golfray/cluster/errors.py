"""How an exception in a rank is told: one line for a person, and a name by which it is known again."""

from __future__ import annotations

import errno
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

import golfray

LONGEST_TEXT = 300

_OWN_ROOT = str(Path(golfray.__file__).parent)
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_own(filename: str) -> bool:
    """Whether a source file is golfray's or the user's, and not an installed package's or Python's own."""
    return filename.startswith(_OWN_ROOT) or not filename.startswith(("<", *_INSTALLED))


def describe_error(error: BaseException) -> str:
    """One line: what ran out where something did, type, first line of the message, innermost own place."""
    message = (str(error).strip().splitlines() or [""])[0][:LONGEST_TEXT]
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    lacking, place = lacking_memory(error), _own_place(error.__traceback__)
    return (f"{lacking}: " if lacking else "") + text + (f" ({place})" if place else "")


def error_identity(error: BaseException) -> str:
    """Type and innermost own place, such as ``ValueError at shards.py:41``: equal for two failures of one kind."""
    name, place = lacking_memory(error) or type(error).__name__, _own_place(error.__traceback__)
    return f"{name} at {place}" if place else name


def lacking_memory(error: BaseException) -> str | None:
    """Which memory it was that did not suffice; None for any other error. Torch says it of the host's in words only."""
    text, kind = str(error), type(error)
    # By name: a driver has no torch.
    if (kind.__name__ == "OutOfMemoryError" and kind.__module__.startswith("torch")) or "CUDA out of memory" in text:
        return "GPU memory exhausted"
    no_room = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if isinstance(error, MemoryError) or no_room or "DefaultCPUAllocator: can't allocate memory" in text:
        return "host memory exhausted"
    return None


def _own_place(trace: TracebackType | None) -> str | None:
    own = [frame for frame in traceback.extract_tb(trace) if is_own(frame.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else None
