"""What listens on this machine for connections from others."""

from __future__ import annotations

import dataclasses
import ipaddress

import psutil  # type: ignore[import-untyped]


@dataclasses.dataclass(frozen=True, order=True)
class Listener:
    """A TCP port that takes connections from beyond this machine.

    ``process`` is the name of the program behind it, empty where it is another user's and may not be seen.
    """

    port: int
    address: str
    process: str


def open_listeners() -> list[Listener]:
    """Every listening TCP socket whose address is not a loopback one, each port and program once, by port."""
    found: dict[tuple[int, str], Listener] = {}
    for connection in psutil.net_connections("tcp"):
        if connection.status != psutil.CONN_LISTEN or is_loopback(connection.laddr.ip):
            continue
        process = _name_of(connection.pid)
        found.setdefault(
            (connection.laddr.port, process), Listener(connection.laddr.port, connection.laddr.ip, process)
        )
    return sorted(found.values())


def is_loopback(address: str) -> bool:
    """Whether connections to an address come from this machine alone."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    inner = getattr(parsed, "ipv4_mapped", None)
    return bool((inner or parsed).is_loopback)


def _name_of(pid: int | None) -> str:
    if pid is None:
        return ""
    try:
        name: str = psutil.Process(pid).name()
    except psutil.Error:
        return ""  # it ended while we looked, or is not ours to look at
    return name
