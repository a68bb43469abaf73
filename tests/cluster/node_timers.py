"""A node's timer in a folder of its own, with a ``shutdown`` that only notes how it was called."""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from golfray.cluster import node_timer

PATIENCE_SECONDS = 120
MODULE = pathlib.Path(node_timer.__file__)


class Timer:
    """The timer whose folder is ``folder``; beside it lie the fake command and what was called."""

    def __init__(self, folder):
        self.folder = folder
        self._called = folder.with_name(f"{folder.name}-called")
        self._programs = folder.with_name(f"{folder.name}-bin")
        self._programs.mkdir()
        fake = self._programs / "shutdown"
        fake.write_text(f'#!/bin/sh\necho "shutdown $*" >> {self._called}\n')
        fake.chmod(0o755)

    def run(self, *arguments):
        """Run the module as a node does: the bare file, and nothing but the standard library."""
        return subprocess.run(
            [sys.executable, "-I", "-S", MODULE, *map(str, arguments)],
            env={"PATH": f"{self._programs}:{os.defpath}", node_timer.FOLDER_VARIABLE: str(self.folder)},
            capture_output=True,
            text=True,
        )

    def arm(self, **minutes):
        options = [f"--{name}={value}" for name, value in minutes.items()]
        done = self.run("arm", "--command=shutdown -P now", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def lease(self):
        return json.loads((self.folder / "lease.json").read_text())

    @property
    def log(self):
        return (self.folder / "log").read_text()

    @property
    def pids(self):
        """The processes that watch this folder's lease."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                command, environment = ((process / name).read_bytes() for name in ("cmdline", "environ"))
            except OSError:
                continue  # it ended meanwhile
            ours = f"{node_timer.FOLDER_VARIABLE}={self.folder}\0".encode()
            if command.endswith(b"node_timer.py\0watch\0") and ours in environment + b"\0":
                found.append(int(process.name))
        return found

    def wait_for(self, why):
        """Wait until the lease says so."""
        self._wait(lambda: self.lease["why"] == why)

    def wait_until_off(self):
        """Wait for the fake command; returns how it was called."""
        self._wait(self._called.exists)
        return self._called.read_text().splitlines()[0]

    def end(self):
        """Kill the timer. One that was armed a moment ago has the lock before its command can be read."""
        self._wait(self._killed)

    def _killed(self):
        found = self.pids
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found and not self._is_held

    @property
    def _is_held(self):
        try:
            with (self.folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        except BlockingIOError:
            return True
        return False

    def _wait(self, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; {self.folder} has {sorted(self.folder.glob('*'))}"
            time.sleep(0.1)
