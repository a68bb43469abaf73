"""Where golfray keeps what it builds once and every study of this user shares."""

import os
import pathlib
import sys

from golfray.data.errors import CannotWriteError

HOME_VARIABLE = "GOLFRAY_HOME"


def golfray_home() -> pathlib.Path:
    """``$GOLFRAY_HOME``, or where that is not set ``golfray`` in this user's cache folder. The folder may not exist.

    Raises ``CannotWriteError`` where there is no such place, as for a user without a name in a container.
    """
    try:
        return _chosen_or_cache()
    except RuntimeError as error:
        raise CannotWriteError(
            "there is no place for what golfray builds once, since the user has no home folder",
            remedy=f"set {HOME_VARIABLE} to a folder",
        ) from error


def _chosen_or_cache() -> pathlib.Path:
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return pathlib.Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return pathlib.Path.home() / "Library" / "Caches" / "golfray"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(cache) if cache else pathlib.Path.home() / ".cache") / "golfray"
