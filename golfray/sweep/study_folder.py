"""The folder of a study: on a local disk, made once, and held by one process at a time.

``driver.json`` in it names the process at work: {"pid", "host", "started" (unix seconds), "verb"}. It is for people;
what keeps others out is the kernel's lock on the folder, which goes with the process however that ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import random
import re
import shlex
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from golfray.config.errors import ConfigError
from golfray.sweep.events import LOG_NAME, StudyLocked, read_events

DRIVER_NAME = "driver.json"

# The verbs that drive a study; every other one that holds its folder only keeps the log from growing meanwhile.
TUNE = "tune"
CONFIRM = "confirm"
_DRIVING = (TUNE, CONFIRM)
# The one of those that writes into it what another machine's driver wrote.
PULL = "pull"

# Who only looks whether the lock is held has it for microseconds; however many look, one turn comes in this time.
_LOOKERS_SECONDS = 10.0
_PAUSE_SECONDS = 0.005

# Not here, so local: tmpfs, overlay, and 9p and virtiofs, by which a virtual machine or a sandbox sees its host's disk.
# The second half are programs; the kernel's table has them as fuse.<name>.
_NETWORK = """
afs beegfs ceph cifs coda davfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs pvfs2 smb3 smbfs wekafs
blobfuse blobfuse2 curlftpfs davfs2 gcsfuse goofys hdfs juicefs lizardfs mfs moosefs mountpoint-s3 rclone s3fs
seaweedfs smbnetfs sshfs
"""
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK.split())

_MOUNTS = Path("/proc/self/mountinfo")

_ELSEWHERE = "mend the disk, or choose another folder with --study-dir"
_LOCAL = "a study lives on a local disk of the machine that drives it: choose one with --study-dir"


class StudyFolderError(Exception):
    """The disk of a study's folder will not do: it cannot be written, or it is another machine's."""

    exit_code = 4


@dataclasses.dataclass(frozen=True)
class Driver:
    """The process that holds a study, as it signed: its number, its machine, since when (unix seconds), doing what.

    The verbs ``TUNE`` and ``CONFIRM`` drive the study: the others write MLflow from its log, and ``PULL`` brings it
    here from another machine.
    """

    pid: int
    host: str
    started: float
    verb: str = TUNE

    @property
    def may_live(self) -> bool:
        """Whether the process can still be there: on another machine that is not known, so it can."""
        return self.host != socket.gethostname() or Path("/proc", str(self.pid)).exists()

    @property
    def drives(self) -> bool:
        """Whether it runs trials."""
        return self.verb in _DRIVING

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"`golfray {self.verb}` (process {self.pid} on {self.host}, since {since})"


def create_study_folder(folder: Path, mounts: Path = _MOUNTS) -> Path:
    """Make the folder of a study that is about to start, and return it.

    Raises ``ConfigError`` where it holds a study or something else has its name, ``StudyFolderError`` where the disk
    does not let it be made or is no local one (``mounts``: see :func:`check_local_disk`); nothing is left there then.
    A folder without a study's first record (an earlier start got no further) is used.
    """
    if holds_study(folder):
        raise existing_study(folder)
    check_local_disk(folder, mounts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(folder)) from error
    except OSError as error:
        raise StudyFolderError(
            f"{folder}: cannot be made: {error.strerror}; choose another with --study-dir"
        ) from error
    return folder


def holds_study(folder: Path) -> bool:
    """Whether at least one whole record was written there. Raises ``EventLogError`` on a damaged log."""
    path = folder / LOG_NAME
    return path.is_file() and next(read_events(path), None) is not None


def existing_study(folder: Path) -> ConfigError:
    """The refusal to start a study over, with what to type instead."""
    return ConfigError(
        "holds a study already, and a study is never overwritten; "
        f"`golfray tune --resume {shlex.quote(str(folder))}` goes on with it, --study-dir chooses another folder",
        file=str(folder),
    )


@contextlib.contextmanager
def only_driver_of(folder: Path, verb: str = TUNE) -> Iterator[None]:
    """Keep every other driver out of a study's folder, from before anything is started in it until all has ended.

    ``verb``: which one drives it.

    The log alone does not: it is opened once Ray runs, and a second start would have replaced the first one's token by
    then. Raises ``StudyLocked`` where another process holds it, ``StudyFolderError`` where the folder is not on a local
    disk or cannot be written.
    """
    check_local_disk(folder)
    with _locked(folder, verb) as driver:
        try:
            _sign(folder, driver)
        except OSError as error:
            raise StudyFolderError(
                f"{folder}: {DRIVER_NAME} cannot be written: {error.strerror}; {_ELSEWHERE}"
            ) from error
        with _signed(folder):
            yield


@contextlib.contextmanager
def no_driver_in(folder: Path, verb: str) -> Iterator[None]:
    """Keep drivers out of a study's folder while ``golfray <verb>`` reads its log or brings it here.

    Nothing need be written: in an archive that may only be read there is a lock, and no signature. Raises
    ``StudyLocked`` where another process holds it, ``StudyFolderError`` where the folder cannot be locked.
    """
    with _locked(folder, verb) as driver:
        # A full disk, or one that may only be read: the lock says enough.
        with contextlib.suppress(OSError):
            _sign(folder, driver)
        with _signed(folder):
            yield


def is_held(folder: Path) -> bool:
    """Whether a process holds the study in ``folder``.

    Its lock is asked for in the shared form and given back at once: two of these never see each other, and whoever
    takes the lock in earnest waits for them (see :func:`_take`).
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def driver_of(folder: Path) -> Driver | None:
    """The process that holds the study in ``folder`` now, as far as can be told; None where there is none.

    Takes no lock, so that a reader never keeps a driver out.
    """
    path = folder / DRIVER_NAME
    try:
        if not path.is_file():
            return None  # who opens a pipe waits for its other end, which nobody may ever hold
        values = json.loads(path.read_text(encoding="utf-8"))
        verb = str(values.get("verb", TUNE))
        driver = Driver(int(values["pid"]), str(values["host"]), float(values["started"]), verb)
        str(driver)  # raises where its moment is none
    except (OSError, ValueError, OverflowError, TypeError, KeyError, AttributeError):
        return None  # none has signed, or it is just signing
    return driver if driver.may_live else None


def check_local_disk(folder: Path, mounts: Path = _MOUNTS) -> None:
    """Raise ``StudyFolderError`` where ``folder`` is on a network file system: locks there cannot be relied on.

    ``mounts`` is the kernel's table (proc_pid_mountinfo(5)). Where there is none, as on macOS, nothing is known and
    nothing is refused.
    """
    if not mounts.exists():
        return
    kind = file_system_of(folder.resolve(), mounts.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind.removeprefix("fuse.") in NETWORK_FILE_SYSTEMS:
        raise StudyFolderError(f"{folder}: is on a network file system ({kind}); {_LOCAL}")


def file_system_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that an absolute path is on, such as ``ext4``; "" where no line covers the path.

    Of several mounts on one point the last covers the others. In ``mountinfo`` the mount point is the fifth field, with
    blanks as octal escapes; the type follows the lone dash after a variable number of fields.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        if path.is_relative_to(point) and len(Path(point).parts) >= best:
            best, kind = len(Path(point).parts), after.split(" ")[0]
    return kind


@contextlib.contextmanager
def _locked(folder: Path, verb: str) -> Iterator[Driver]:
    """Hold the kernel's lock on ``folder``; yields the signature of this process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            _take(handle)
        except BlockingIOError:
            raise StudyLocked(_why_locked(folder, verb)) from None
        except OSError as error:
            raise StudyFolderError(f"{folder}: cannot be locked: {error.strerror}; {_LOCAL}") from error
        yield Driver(os.getpid(), socket.gethostname(), time.time(), verb)
    finally:
        os.close(handle)


def _take(handle: int) -> None:
    """Lock a folder for this process alone. Raises ``BlockingIOError`` where another process holds it so.

    A lock in the shared form is one that somebody looks at, see :func:`is_held`: that is not yet a reason to give up.
    """
    deadline = time.monotonic() + _LOOKERS_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            # Not to be had together with the other form, so this fails where a process holds the folder.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(handle, fcntl.LOCK_UN)
            if time.monotonic() > deadline:
                raise
        # Of two that start at once, each must not find the other one looking for ever.
        time.sleep(random.uniform(0, _PAUSE_SECONDS))


def _sign(folder: Path, driver: Driver) -> None:
    # What stands there is of a driver that is gone, or no file at all: whoever opens a pipe waits for its other end.
    (folder / DRIVER_NAME).unlink(missing_ok=True)
    try:
        (folder / DRIVER_NAME).write_text(json.dumps(dataclasses.asdict(driver)), encoding="utf-8")
    except OSError:
        # On a full disk an empty file is made before the writing fails.
        with contextlib.suppress(OSError):
            (folder / DRIVER_NAME).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _signed(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        # Gone with the whole folder, or on a disk that broke: neither is a reason to fail once more.
        with contextlib.suppress(OSError):
            (folder / DRIVER_NAME).unlink(missing_ok=True)


def _why_locked(folder: Path, verb: str) -> str:
    """What holds the folder, and what whoever typed ``golfray <verb>`` can do about it."""
    holder = driver_of(folder)
    if holder is None:
        return f"{folder}: another golfray is at work here; try again when it has ended"
    if holder.verb == PULL:
        return f"{folder}: {holder} copies it from another machine; call this again when that has ended"
    if not holder.drives:
        return f"{folder}: {holder} writes MLflow from its log; wait until that has ended, or end it: nothing is lost"
    if verb in _DRIVING:
        return f"{folder}: {holder} runs it already; `golfray status {shlex.quote(str(folder))}` says how far it is"
    if verb == PULL:
        return f"{folder}: {holder} runs it here, so nothing was changed; --study-dir names another folder for the copy"
    return f"{folder}: {holder} is at work here and writes MLflow itself; call this again when it has ended"
