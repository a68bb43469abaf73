"""Whether a cluster's servers still live, looked at from the driver.

Ray itself ends the driver's process, without a word and with exit code 1, about a minute after it has lost them. The
driver looks first, so that the study can end in its log.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Protocol

import psutil  # type: ignore[import-untyped]

from golfray.cluster.preflight import EnvironmentProblem

_NEEDED = ("gcs_server", "raylet")

_CONNECT_SECONDS = 5.0
# A server that is merely busy, or a network that stumbles, is back by the next look or the one after it.
_MISSES = 3


class Servers(Protocol):
    """The processes that a cluster cannot do without."""

    def dead(self) -> str | None:
        """What has ended, as a person would say it; None while all is well."""


class OwnServers:
    """Those that ``ray.init`` started in this process. ``logs``: Ray's, to be named where one of them dies."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        named = [(_name_of(child), child) for child in psutil.Process().children()]
        self._processes = [child for name, child in named if name in _NEEDED]
        self._names = [name for name, _ in named if name in _NEEDED]
        if sorted(self._names) != sorted(_NEEDED):
            raise EnvironmentProblem(f"Ray started, but of {' and '.join(_NEEDED)} these run: {self._names}")

    def dead(self) -> str | None:
        """See :class:`Servers`."""
        for name, process in zip(self._names, self._processes, strict=True):
            if not _lives(process):
                return f"Ray's {name} (process {process.pid}) has died, see {self._logs / name}.out"
        return None


def _name_of(process: psutil.Process) -> str:
    try:
        name: str = process.name()
    except psutil.Error:
        return ""  # a child that ended while we looked
    return name


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class FarServers:
    """The one server of somebody else's cluster that all of it depends on, at ``address`` (host:port)."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._missed = 0

    def dead(self) -> str | None:
        """See :class:`Servers`. Asks by opening a connection."""
        closed = why_closed(self._address)
        self._missed = 0 if closed is None else self._missed + 1
        if self._missed >= _MISSES:
            return f"the Ray cluster at {self._address} does not answer any more: {closed}"
        return None


def why_closed(address: str) -> str | None:
    """Why nobody takes a connection at ``address`` (host:port); None where somebody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
