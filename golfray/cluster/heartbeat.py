"""The study's sign of life to the timers of its nodes (:mod:`golfray.cluster.node_timer`).

The driver gives it from the loop in which the study runs, and not from a thread beside it: a driver that hangs gives
none. It waits for no node. A node without a timer, such as a laptop, has nothing to renew.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Protocol

from golfray.cluster import node_timer
from golfray.sweep.budget import CLOSE_S

BEAT_SECONDS = 60.0
"""A node outlives the last sign by minutes, so one a minute is enough, and two that are lost are no harm."""

_GOODBYE_SECONDS = 10.0

_log = logging.getLogger("ray.golfray")


class Signs(Protocol):
    """How a sign reaches the nodes."""

    def give(self, sign: str, *arguments: float) -> None:
        """Have every node call this function of its timer; what is wrong with a timer is logged."""

    def wait(self) -> None:
        """Wait until every node has heard the last sign, for a moment at the most."""


class Heartbeat:
    """Renews the timer of every node; ``local``: of this machine alone, without Ray.

    ``hold_until``: unix time by which the study has ended whatever happens; the nodes go off soon after it.
    """

    def __init__(self, local: bool) -> None:
        self.hold_until = math.inf
        self._next = 0.0
        self._signs: Signs = _HereSigns() if local else _NodeSigns()

    def beat(self) -> None:
        """Renew all timers, if that is due. What is wrong with a timer does not end the study."""
        if node_timer.clock() >= self._next:
            self._next = node_timer.clock() + BEAT_SECONDS
            self._signs.give("renew", self.hold_until + CLOSE_S - time.time())

    def done(self) -> None:
        """The study is over: the nodes stay for the minutes in which its results are fetched."""
        self._signs.give("study_done")
        self._signs.wait()

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


class TimerActor:
    """On a node of the cluster: calls its timer's functions. One that stays starts no process for every sign."""

    def call(self, sign: str, *arguments: float) -> str:
        """What the function says, or what is wrong."""
        return _call(sign, *arguments)


class _HereSigns:
    """On this machine, in this process."""

    def give(self, sign: str, *arguments: float) -> None:
        _note("this node", _call(sign, *arguments))

    def wait(self) -> None:
        """It was heard when it was given."""


class _NodeSigns:
    """One actor a node, on those that are in the cluster at the time."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._unheard: dict[str, Any] = {}

    def give(self, sign: str, *arguments: float) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._hear()
        names = {node["NodeID"]: f"node {node['NodeManagerAddress']}" for node in ray.nodes() if node["Alive"]}
        self._actors = {node: actor for node, actor in self._actors.items() if node in names}
        for node, name in names.items():
            if node not in self._actors:
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                self._actors[node] = ray.remote(num_cpus=0, scheduling_strategy=there)(TimerActor).remote()
            if node in self._unheard:
                _log.warning("%s has not answered the last heartbeat yet", name)
            self._unheard[node] = (name, self._actors[node].call.remote(sign, *arguments))

    def wait(self) -> None:
        import ray

        answers = [answer for _, answer in self._unheard.values()]
        if answers:
            ray.wait(answers, num_returns=len(answers), timeout=_GOODBYE_SECONDS)
        self._hear()

    def _hear(self) -> None:
        """What was answered since."""
        import ray

        for node, (name, answer) in list(self._unheard.items()):
            if not ray.wait([answer], timeout=0)[0]:
                continue
            del self._unheard[node]
            try:
                _note(name, ray.get(answer))
            except ray.exceptions.RayError as error:
                # With the next sign it gets another one, if it still is in the cluster.
                self._actors.pop(node, None)
                _log.warning("%s could not renew its timer: %s", name, " ".join(str(error).split()))


def _call(sign: str, *arguments: float) -> str:
    functions = {"renew": node_timer.renew, "study_done": node_timer.study_done}
    try:
        return functions[sign](*arguments)
    except node_timer.TimerError as error:
        return str(error)


def _note(name: str, found: str) -> None:
    if found == node_timer.DEAD:
        _log.warning("%s: its timer has ended; arm it again, or it stays on for ever", name)
    elif found not in (node_timer.ARMED, node_timer.ABSENT):
        _log.warning("%s could not renew its timer: %s", name, found)
