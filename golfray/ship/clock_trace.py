"""The clock readings of a run, checked before another run is started that is to be told by them."""

from __future__ import annotations

import json
import math
from pathlib import Path

from golfray.config.errors import ConfigError
from golfray.core.schedule import is_over
from golfray.core.settings import StopSettings


def check_clock_trace(path: Path, stop: StopSettings) -> int:
    """How many readings of a run's clock.json a run with ``stop`` takes until it ends.

    Raises ``ConfigError`` where the file holds no readings, or where they end before the run does.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"is no clock.json of a run: {error}", file=str(path)) from error
    readings = content.get("readings_s") if isinstance(content, dict) else None
    if not isinstance(readings, list) or not readings or not all(map(_is_seconds, readings)):
        raise ConfigError("has no readings_s, seconds from 0 up; give the clock.json of a run", file=str(path))
    for step, elapsed in enumerate(readings):
        if is_over(stop, step, elapsed):
            return step + 1
    limits = [f"stop.steps={stop.steps}"] if stop.steps is not None else []
    limits += [f"stop.seconds={stop.seconds:g}"] if stop.seconds is not None else []
    raise ConfigError(
        f"ends after {len(readings) - 1} steps and {readings[-1]:g} s, before {' or '.join(limits)}; "
        "give the settings of the run that it is of, or the clock.json of a run with these settings",
        file=str(path),
    )


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
