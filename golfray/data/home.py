"""Where golfray keeps what it builds once and every study of this user shares."""

import os
import pathlib
import sys

HOME_VARIABLE = "GOLFRAY_HOME"


def golfray_home() -> pathlib.Path:
    """``$GOLFRAY_HOME``, or where that is not set ``golfray`` in this user's cache folder. The folder may not exist."""
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return pathlib.Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return pathlib.Path.home() / "Library" / "Caches" / "golfray"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(cache) if cache else pathlib.Path.home() / ".cache") / "golfray"
