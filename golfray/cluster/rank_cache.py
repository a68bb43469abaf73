"""torch's compile cache for one rank: a private folder, filled from the shared one of its machine, which it only reads.

Ranks that compile into one folder wait for each other's locks, and one that dies there leaves half a program to the
others. So each rank compiles into a folder of its own, in which everything that the machine's shared cache has is there
by symbolic links. What a rank has compiled is given to the shared cache between two trials, file by file, each whole
under its name at once, so that the next study finds it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Reads like torch's own variable, which names the folder to it.
VARIABLE = "TORCHINDUCTOR_CACHE_DIR"

_LOCK = ".lock"
_UNFINISHED = ".tmp"
# 150 MB each; torch looks for them in the place that it has by default, wherever the rest is.
_HEADERS = "precompiled_headers"


class RankCache:
    """``private``: this rank's folder; ``shared``: its machine's, :func:`golfray.sweep.compile_cache.cache_folder`."""

    def __init__(self, private: Path, shared: Path) -> None:
        self._private = private
        self._shared = shared

    def open(self) -> None:
        """Begin with an empty folder, name it to torch, and fill it. Raises ``OSError`` where it cannot be made."""
        shutil.rmtree(self._private, ignore_errors=True)
        self._private.mkdir(parents=True)
        os.environ[VARIABLE] = str(self._private)
        self.fill()

    def fill(self) -> int:
        """Link what the shared cache has and this one lacks; returns how many files that were."""
        count = 0
        for source in _finished(self._shared):
            link = self._private / source.relative_to(self._shared)
            if not os.path.lexists(link):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(source)
                count += 1
        return count

    def give(self) -> int:
        """Give the shared cache what this rank has compiled and it lacks; returns how many files that were.

        Raises ``OSError`` where a file cannot be written there, of which nothing is left then.
        """
        count = 0
        for source in _finished(self._private):
            target = self._shared / source.relative_to(self._private)
            if source.is_symlink() or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # On one file system a link would do, but then a rank could still change what others read.
            part = target.with_name(f"{target.name}.{os.getpid()}{_UNFINISHED}")
            try:
                shutil.copy2(source, part)
                os.replace(part, target)
            except OSError:
                part.unlink(missing_ok=True)
                raise
            count += 1
        return count

    def share(self, step: Callable[[], int]) -> str | None:
        """:meth:`fill` or :meth:`give`: why it could not be done, None where it was.

        A cache that is full, or may only be read, costs time to compile again; it must cost no trial and no rank.
        """
        try:
            step()
        except OSError as error:
            place = error.filename or self._shared
            return f"the compile cache {self._shared} is not shared with this rank ({place}: {error.strerror})"
        return None


def _finished(folder: Path) -> Iterator[Path]:
    """The files of a cache but for locks and for what is just being written (torch's begin with a dot)."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _HEADERS]
        for name in names:
            if not name.startswith(".") and not name.endswith((_LOCK, _UNFINISHED)):
                yield Path(parent, name)


def compile_counts() -> dict[str, int]:
    """How many graphs torch took from its cache and how many it compiled, in this process; nothing before a first."""
    # Not imported for the sake of this: that takes seconds, and an eager run needs none of it.
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return {}
    found = utils.counters["inductor"]
    return {"compile/cache_hits": found["fxgraph_cache_hit"], "compile/cache_misses": found["fxgraph_cache_miss"]}
