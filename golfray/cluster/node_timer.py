"""The timer of one node, which shuts it down when nobody needs it any more: ``python3 node_timer.py arm``.

A rented node costs money until it is off, whoever died meanwhile: the driver, the head, the network between. So every
node is armed at boot, before anything is installed, and goes off by itself unless a study renews its lease. The lease
is a file on the node with the moment, by the node's own clock since its boot, at which the node goes off: some minutes
after the last sign of a study, never later than the budget lasts, and some minutes after the study is done.

Runs from this file alone on any Python from 3.8 with the standard library (nothing is installed yet), and is imported
by the study, whose heartbeat calls :func:`renew` and :func:`study_done` on every node.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FOLDER_VARIABLE = "GOLFRAY_NODE_TIMER"
"""Where lease, lock and log of this node are; default: a folder of this user's in the system's temporary one."""

_LEASE, _LOCK, _LOG = "lease.json", "lock", "log"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 60.0

ARMED, DEAD, ABSENT = "armed", "dead", "absent"
"""What :func:`renew` found: a timer that runs; a lease whose timer has ended; no timer, so nothing to renew."""


class TimerError(RuntimeError):
    """The timer's folder or lease cannot be used; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Lease:
    """Until when the node may run. Seconds; ``until`` is a reading of the clock that started with the node.

    ``why``: what will have happened by then. ``silent_s``: how long a node outlives the last renewal; ``done_s``: the
    end of a study. ``command``: what the shell runs to shut the node down.
    """

    until: float
    why: str
    silent_s: float
    done_s: float
    command: str


def clock() -> float:
    """Seconds since some moment before the boot: the same in every process of the node, and set by nobody."""
    return time.monotonic()


def arm(command: str, boot_s: float, silent_s: float, done_s: float) -> bool:
    """Give this node ``boot_s`` seconds until the first study renews it, and start its timer where none runs.

    Returns whether it was started; one that runs goes on under the new lease. Raises :class:`TimerError`.
    """
    if not command.strip():
        raise TimerError("an empty command shuts no node down; give one, such as 'sudo shutdown -P now'")
    folder = _named_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(folder)
        _write(folder, Lease(clock() + boot_s, "no study has begun", silent_s, done_s, command))
        return _start(folder)
    except OSError as error:
        raise _unusable(folder, error) from error


def _start(folder: Path) -> bool:
    """Start the process that watches the lease, unless one does."""
    lock = os.open(str(folder / _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked(lock):
            return False
        # The timer inherits the open file and with it the lock, so there is never a moment without its holder.
        with (folder / _LOG).open("a", encoding="utf-8") as log:
            subprocess.Popen(
                [sys.executable, "-I", os.path.abspath(__file__), "watch"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                start_new_session=True,
                cwd="/",
            )
        return True
    finally:
        os.close(lock)


def renew(left_s: float = math.inf) -> str:
    """A study is at work on this node, and may be for ``left_s`` seconds more at the most; says what it found.

    Called by the study's heartbeat and, to keep a node for longer, by a person.
    """
    return _extend(lambda lease: min((lease.silent_s, "no study has given a sign"), (left_s, "the budget is spent")))


def study_done() -> str:
    """The study on this node has ended; says what it found."""
    return _extend(lambda lease: (lease.done_s, "the study is done"))


def keep(seconds: float) -> str:
    """A person needs this node for so many seconds, without any study; says what it found."""
    return _extend(lambda lease: (seconds, "the time that a person asked for is over"))


def current() -> Lease | None:
    """The lease of this node; None where no timer was armed. Raises :class:`TimerError` where it cannot be read."""
    return _read(_named_folder())


def watch() -> None:
    """Wait until the lease has run out, and shut the node down; where that fails, try again every minute."""
    folder = _named_folder()
    lease = _read(folder)
    if lease is None:
        raise TimerError("there is no lease to watch; arm the timer instead")
    while True:
        # Also between two tries: whoever renews the lease then is told that the node stays on.
        while clock() < lease.until:
            time.sleep(_LOOK_SECONDS)
            lease = _newest(folder, lease)
        _say(f"{lease.why}: {lease.command}")
        code = subprocess.run(lease.command, shell=True, check=False, stdin=subprocess.DEVNULL).returncode
        if code == 0:
            return
        _say(f"that ended with exit code {code}; it is tried again in {_AGAIN_SECONDS:.0f} s")
        time.sleep(_AGAIN_SECONDS)
        lease = _newest(folder, lease)


def _extend(reckon: Callable[[Lease], tuple[float, str]]) -> str:
    """Write a lease that ends when ``reckon(lease)``, seconds from now and a reason, says so."""
    folder = _named_folder()
    lease = _read(folder)
    if lease is None:
        return ABSENT
    seconds, why = reckon(lease)
    try:
        _write(folder, dataclasses.replace(lease, until=clock() + seconds, why=why))
        lock = os.open(str(folder / _LOCK), os.O_RDWR)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        return DEAD if _locked(lock) else ARMED
    finally:
        os.close(lock)


def _unusable(folder: Path, error: OSError) -> TimerError:
    return TimerError(
        f"{error.filename or folder}: {error.strerror}; make room there, or name another folder in {FOLDER_VARIABLE}"
    )


def _locked(lock: int) -> bool:
    """Whether the lock was free, and is held now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _newest(folder: Path, known: Lease) -> Lease:
    """The lease as it is now. One that cannot be read must not keep the node alive: the last one that could holds."""
    try:
        found = _read(folder)
    except TimerError as error:
        _say(str(error))
        return known
    return known if found is None else found


def _named_folder() -> Path:
    named = os.environ.get(FOLDER_VARIABLE)
    if not named:
        return Path(tempfile.gettempdir()) / f"golfray-node-timer-{os.getuid()}"
    if not os.path.isabs(named):
        # Each process would look for it in a working folder of its own, and none find the other's.
        raise TimerError(f"{FOLDER_VARIABLE} must be a folder from the root, got {named}")
    return Path(named)


def _check_ours(folder: Path) -> None:
    """Whoever else may write there could keep the node on, or have a command of their own run here."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise TimerError(f"{folder} is not a folder that this user alone may write to; remove it")


def _read(folder: Path) -> Lease | None:
    """The lease; None where there is none."""
    path = folder / _LEASE
    try:
        _check_ours(folder)
        lease = Lease(**json.loads(path.read_text(encoding="utf-8")))
        _check_values(lease)
        return lease
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise TimerError(f"{path} is no lease ({error}); arm the timer again") from error


def _check_values(lease: Lease) -> None:
    """Raise ``ValueError`` where one of them would end the timer, or keep the node on for ever."""
    for name in ("until", "silent_s", "done_s"):
        value = getattr(lease, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
    for name in ("why", "command"):
        if not isinstance(getattr(lease, name), str):
            raise ValueError(f"{name} must be text, got {getattr(lease, name)!r}")


def _write(folder: Path, lease: Lease) -> None:
    """Put the lease into the place of the old one: nobody ever reads half of one."""
    descriptor, new = tempfile.mkstemp(dir=str(folder), prefix=_LEASE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(lease), file)
        os.replace(new, str(folder / _LEASE))
    except OSError:
        # On a full disk the heartbeat would leave one every minute.
        os.unlink(new)
        raise


def _say(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="node_timer.py", description="Shuts this node down when no study needs it.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    arming = verbs.add_parser("arm", help="Start the timer, or give the one that runs a new lease.")
    arming.add_argument("--command", required=True, help="What shuts the node down, such as 'sudo shutdown -P now'.")
    arming.add_argument("--boot", type=_minutes, default=60.0, help="Minutes until a study must have begun (60).")
    arming.add_argument("--silent", type=_minutes, default=15.0, help="Minutes after a study's last sign (15).")
    arming.add_argument("--done", type=_minutes, default=15.0, help="Minutes after a study's end (15).")
    keeping = verbs.add_parser("keep", help="Keep the node for so long, from now on, without a study.")
    keeping.add_argument("minutes", type=_minutes)
    verbs.add_parser("show", help="Say when the node goes off, and why.")
    verbs.add_parser("watch", help="Be the timer; `arm` starts it.")
    return parser


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < 60 * minutes < math.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number of minutes above 0, got {text}")
    return minutes


def _show() -> str:
    lease = current()
    if lease is None:
        return "this node has no timer"
    left = (lease.until - clock()) / 60
    return f"this node goes off in {left:.1f} minutes unless that is put off ({lease.why}): {lease.command}"


def main() -> int:
    """Run one verb; returns 0, or 1 with a line that says what is wrong."""
    options = _parser().parse_args()
    try:
        if options.verb == "watch":
            watch()
            return 0
        if options.verb == "arm":
            arm(options.command, 60 * options.boot, 60 * options.silent, 60 * options.done)
        elif options.verb == "keep" and keep(60 * options.minutes) == DEAD:
            raise TimerError("the timer of this node has ended; arm it again")
        print(_show())
    except TimerError as error:
        print(f"node_timer.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
