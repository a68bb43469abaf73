"""Ports of the loopback address."""

import contextlib
import socket
from collections.abc import Iterator


def free_port() -> int:
    """One that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """One where every connection is refused: it is held meanwhile, so no other process can begin to listen there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
