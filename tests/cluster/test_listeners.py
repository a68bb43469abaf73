"""Which listening sockets others can reach: real ones, of this process."""

import socket

import pytest

from golfray.cluster.listeners import is_loopback, open_listeners


def test_only_what_others_can_reach():
    with socket.create_server(("127.0.0.1", 0)) as inner, socket.create_server(("0.0.0.0", 0)) as outer:
        found = {listener.port: listener for listener in open_listeners()}
        assert inner.getsockname()[1] not in found
        port = outer.getsockname()[1]
        assert found[port].address == "0.0.0.0"
        assert found[port].process != ""
    assert port not in {listener.port for listener in open_listeners()}


@pytest.mark.parametrize(
    ("address", "inner"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.4", False),
        ("fe80::1%eth0", False),
    ],
)
def test_loopback(address, inner):
    assert is_loopback(address) is inner
