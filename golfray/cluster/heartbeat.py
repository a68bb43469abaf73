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

# A node that is there answers in milliseconds; its first answer waits for a process to start.
_ANSWER_SECONDS = 10.0

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


class NodeTimers:
    """On the head: passes signs on to one actor a node, on those that are in the cluster at the time.

    Whoever asks for the nodes of a cluster whose head has died waits for a minute, and Ray ends the process then. The
    driver must live to say what happened, so it asks this actor, whose answer it need not wait for.
    """

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    def give(self, sign: str, *arguments: float) -> list[tuple[str, str]]:
        """Have every node call this function of its timer; each node's name, and what it found or what is wrong."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        names = {node["NodeID"]: f"node {node['NodeManagerAddress']}" for node in ray.nodes() if node["Alive"]}
        self._actors = {node: actor for node, actor in self._actors.items() if node in names}
        asked = {}
        for node, name in names.items():
            if node not in self._actors:
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                self._actors[node] = ray.remote(num_cpus=0, scheduling_strategy=there)(TimerActor).remote()
            asked[self._actors[node].call.remote(sign, *arguments)] = (node, name)
        answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_SECONDS)
        found = [(asked[answer][1], f"no answer for {_ANSWER_SECONDS:g} s") for answer in silent]
        for answer in answered:
            node, name = asked[answer]
            try:
                found.append((name, ray.get(answer)))
            except ray.exceptions.RayError as error:
                # With the next sign it gets another one, if it still is in the cluster.
                del self._actors[node]
                found.append((name, " ".join(str(error).split())))
        return found


class _NodeSigns:
    """By way of the head, to all nodes of the cluster."""

    def __init__(self) -> None:
        self._timers: Any = None
        self._answer: Any = None

    def give(self, sign: str, *arguments: float) -> None:
        import ray

        self._hear()
        if self._answer is not None:
            _log.warning("the nodes have not answered the last heartbeat yet")
        if self._timers is None:
            on_head = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
            self._timers = ray.remote(**on_head)(NodeTimers).remote()
        self._answer = self._timers.give.remote(sign, *arguments)

    def wait(self) -> None:
        import ray

        if self._answer is not None:
            ray.wait([self._answer], timeout=2 * _ANSWER_SECONDS)
        self._hear()

    def _hear(self) -> None:
        """What was answered since."""
        import ray

        if self._answer is None or not ray.wait([self._answer], timeout=0)[0]:
            return
        answer, self._answer = self._answer, None
        try:
            for name, found in ray.get(answer):
                _note(name, found)
        except ray.exceptions.RayError as error:
            self._timers = None  # the next sign has another one made
            _log.warning("no node heard the last heartbeat: %s", " ".join(str(error).split()))


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
