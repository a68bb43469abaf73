"""The study's sign of life to the timers of its nodes (:mod:`golfray.cluster.node_timer`).

The driver gives it from the loop in which the study runs, and not from a thread beside it: a driver that hangs gives
none. It waits for no node. A node without a timer, such as a laptop, has nothing to renew.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from golfray.cluster import node_timer
from golfray.cluster.nodes import ask_node
from golfray.sweep.budget import CLOSE_S

BEAT_SECONDS = 60.0
"""A node outlives the last sign by minutes, so one a minute is enough, and two that are lost are no harm."""

_GOODBYE_SECONDS = 10.0

_log = logging.getLogger("ray.golfray")


class Heartbeat:
    """Renews the timer of every node of a cluster; ``local``: of this machine alone, without Ray.

    ``hold_until``: unix time by which the study has ended whatever happens; the nodes go off soon after it.
    """

    def __init__(self, local: bool) -> None:
        self.hold_until = math.inf
        self._local = local
        self._next = 0.0
        self._asked: list[tuple[str, Any]] = []

    def beat(self) -> None:
        """Renew all timers, if that is due. Nothing that goes wrong on a node ends the study; it is logged."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + BEAT_SECONDS
        self._tell(node_timer.renew, self.hold_until + CLOSE_S - time.time())

    def done(self) -> None:
        """The study is over: the nodes stay for the minutes in which its results are fetched."""
        self._tell(node_timer.study_done)
        if self._asked:
            import ray

            ray.wait([answer for _, answer in self._asked], num_returns=len(self._asked), timeout=_GOODBYE_SECONDS)
            self._hear()

    def describe(self) -> list[str]:
        """A line about this machine's own timer, where it has one."""
        try:
            lease = node_timer.current()
        except node_timer.TimerError as error:
            return [f"this node's timer is of no use: {error}"]
        if lease is None:
            return []
        return [
            f"this node goes off {lease.silent_s / 60:g} minutes after the study's last sign, and "
            f"{lease.done_s / 60:g} after its end: {lease.command}"
        ]

    def _tell(self, what: Callable[..., str], *arguments: float) -> None:
        if self._local:
            try:
                self._note("this node", what(*arguments))
            except node_timer.TimerError as error:
                _log.warning("this node could not renew its timer: %s", error)
            return
        import ray

        self._hear()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self._asked = [
            (f"node {node['NodeManagerAddress']}", ask_node(node["NodeID"], what, *arguments)) for node in nodes
        ]

    def _hear(self) -> None:
        """What the nodes said to the last sign, as far as they have answered."""
        import ray

        for name, answer in self._asked:
            if not ray.wait([answer], timeout=0)[0]:
                _log.warning("%s has not yet answered the last heartbeat", name)
                continue
            try:
                self._note(name, ray.get(answer))
            except ray.exceptions.RayError as error:
                _log.warning("%s could not renew its timer: %s", name, " ".join(str(error).split()))
        self._asked = []

    def _note(self, name: str, found: str) -> None:
        if found == node_timer.DEAD:
            _log.warning("%s: its timer has ended; arm it again, or it stays on for ever", name)
