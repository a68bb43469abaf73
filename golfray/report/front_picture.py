"""The front of bits per byte against bytes as a picture: one SVG file that needs nothing else."""

from __future__ import annotations

from golfray.sweep.export_search import SearchResult


def front_picture(result: SearchResult, title: str) -> str:
    """SVG text: every setting as a dot, the front as a line, the chosen setting and the cap marked."""
    raise NotImplementedError
