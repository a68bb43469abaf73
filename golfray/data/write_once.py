"""Folders that are either complete or not there, whoever builds them and whenever that is interrupted."""

import contextlib
import fcntl
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import IO

from golfray.data.durable import flush_to_disk, put_in_place
from golfray.data.errors import CannotWriteError
from golfray.data.home import HOME_VARIABLE

logger = logging.getLogger(__name__)

REMEDY = f"{HOME_VARIABLE} can be set to a folder on another disk"


def make_folder_once(target: pathlib.Path, make: Callable[[pathlib.Path], None], remedy: str = REMEDY) -> bool:
    """Have ``make`` fill an empty folder beside ``target`` and rename it to ``target`` once all of it is on disk.

    Nothing happens where ``target`` exists. Of several processes that call this at once one makes the folder and the
    others wait for it; a process that is killed leaves nothing in the way of the next.

    Returns whether this call made the folder. Raises what ``make`` raises, and ``CannotWriteError`` with ``remedy`` for
    an ``OSError`` such as a full disk or a folder that may not be written; nothing is left behind then.
    """
    if target.exists():
        return False
    try:
        with _parents(target), only_one(target.with_name(f".{target.name}.lock")):
            if target.exists():
                return False
            _make(target, make)
    except OSError as error:
        raise CannotWriteError(f"{target}: could not be built: {error}; {remedy}") from error
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
            flush_to_disk(path)
        put_in_place(unfinished, target)
    except BaseException:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        raise


@contextlib.contextmanager
def _parents(target: pathlib.Path) -> Iterator[None]:
    """The folders above ``target``; those that had to be made are removed again where ``target`` did not come to be."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        if not target.exists():
            # Others may have put something into them meanwhile, or taken them away.
            with contextlib.suppress(OSError):
                for parent in missing:
                    parent.rmdir()


@contextlib.contextmanager
def only_one(lock: pathlib.Path) -> Iterator[None]:
    """Hold ``lock`` for this process; the kernel lets go of it however the process ends."""
    file = _take(lock)
    try:
        yield
    finally:
        # Removed while it is still held, so that whoever waits for it finds it gone and takes a new one.
        lock.unlink(missing_ok=True)
        file.close()


def _take(lock: pathlib.Path) -> IO[bytes]:
    while True:
        file = open(lock, "ab")  # noqa: SIM115 - held until only_one closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("%s: another process is at work; waiting for it", lock)
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                return file
        file.close()
