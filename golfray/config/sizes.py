"""Sizes of files and disks, and counts of things, as a person reads them, the same on every page.

Units are decimal, as the cap is: 16,000,000 bytes are 16.0 MB.
"""

from __future__ import annotations

_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def size_text(size: int) -> str:
    """A number of bytes in the largest unit of which it is at least one: ``16.0 GB``, ``254.5 kB``, ``7 bytes``."""
    for unit, bytes_each in _UNITS:
        if size >= bytes_each:
            return f"{size / bytes_each:,.1f} {unit}"
    return "1 byte" if size == 1 else f"{size} bytes"


def count_text(number: int, noun: str) -> str:
    """A number of things: ``1 trial``, ``2,000 trials``; ``noun`` is the singular and takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
