"""Folders that are either complete or not there, whoever builds them and whenever that is interrupted."""

import contextlib
import fcntl
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from golfray.data.errors import DataError
from golfray.data.home import HOME_VARIABLE

logger = logging.getLogger(__name__)


def make_folder_once(target: pathlib.Path, make: Callable[[pathlib.Path], None]) -> bool:
    """Have ``make`` fill an empty folder beside ``target`` and rename it to ``target`` once all of it is on disk.

    Nothing happens where ``target`` exists. Of several processes that call this at once one makes the folder and the
    others wait for it; a process that is killed leaves nothing in the way of the next.

    Returns whether this call made the folder. Raises what ``make`` raises, and ``DataError`` for an ``OSError`` such as
    a full disk or a folder that may not be written; nothing is left behind then.
    """
    if target.exists():
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(target.with_name(f".{target.name}.lock")):
            if target.exists():
                return False
            _make(target, make)
    except OSError as error:
        raise DataError(
            f"{target}: could not be built: {error}; {HOME_VARIABLE} can be set to a folder on another disk"
        ) from error
    return True


def _make(target: pathlib.Path, make: Callable[[pathlib.Path], None]) -> None:
    unfinished = target.with_name(f".{target.name}.unfinished")
    if unfinished.exists():
        logger.info("%s: left by a process that was interrupted; removed", unfinished)
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    try:
        make(unfinished)
        for path in [*unfinished.rglob("*"), unfinished]:
            _flush_to_disk(path)
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    _flush_to_disk(target.parent)


@contextlib.contextmanager
def _only_one(lock: pathlib.Path) -> Iterator[None]:
    """Hold ``lock`` for this process; the kernel lets go of it however the process ends."""
    with open(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("%s: another process is at work; waiting for it", lock)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _flush_to_disk(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
