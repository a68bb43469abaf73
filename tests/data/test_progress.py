"""A line is said where it is time for one."""

import pytest

from golfray.data.progress import Progress


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, ["one", "two"]), (float("inf"), [])])
def test_progress(seconds: float, lines: list[str]) -> None:
    said: list[str] = []
    progress = Progress(said.append, seconds)
    for line in ("one", "two"):
        progress.at(line)
    assert said == lines
