"""The ranks of a lane as others see them: a seat, the process on it, and how it failed.

Ray is imported inside functions: it reads its variables when it is imported, and ``environment`` sets them first.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from typing import Any

from golfray.cluster.errors import LONGEST_TEXT
from golfray.cluster.nodes import NoAnswer, Nodes, end_process

# The error of a rank whose process ended and nobody has looked yet why.
UNEXPLAINED = "rank died"
# The error of one that could not be reached: its process has ended, or its node was cut off.
UNREACHABLE = "rank unreachable"

_PROBE_SECONDS = 5.0
_KILL_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Seat:
    """One rank's place: ``group`` names the incarnation of the lane, new after every restart."""

    lane: str
    group: str
    rank: int


@dataclasses.dataclass(frozen=True)
class RankError:
    """How a rank failed: ``kind`` is "raised", "died" or "preempted"; ``error`` is :attr:`Outcome.error`."""

    kind: str
    text: str
    error: str | None = None


NODE_CUT_OFF = RankError("preempted", "its node was cut off from the network", "node cut off")
NODE_LOST = RankError("preempted", "its node has left the cluster", "node lost")


@dataclasses.dataclass(frozen=True)
class RankProcess:
    """The process on a seat, reached through its Ray actor; ``node`` is Ray's name of the machine.

    ``born`` is when it was created (seconds since the epoch), so that another process that got its id is not taken for
    it.
    """

    actor: Any
    pid: int
    born: float
    node: str

    async def kill(self, nodes: Nodes) -> None:
        """End the process by force, stopped by a signal or not; Train then restarts the lane."""
        import ray

        # Ray alone asks the process to end, and a stopped one does not hear it; a node that is gone is Ray's to notice.
        with contextlib.suppress(NoAnswer):
            await nodes.ask(self.node, end_process, self.pid, self.born, limit_s=_KILL_SECONDS)
        ray.kill(self.actor)

    async def probe(self, nodes: Nodes) -> RankError | None:
        """How the process ended; None where it lives, or does not answer on a node that is still there.

        Peers see a lost node at once, by their connections, and Ray only after its heartbeats are missed.
        """
        from ray.exceptions import OutOfMemoryError, RayActorError

        try:
            await asyncio.wait_for(self.actor.__ray_ready__.remote(), _PROBE_SECONDS)
        except (RayActorError, OutOfMemoryError) as error:
            return rank_error(error)
        except TimeoutError:
            return await self._look_for_node(nodes)
        return None

    async def _look_for_node(self, nodes: Nodes) -> RankError | None:
        try:
            await nodes.ask(self.node, os.getpid, limit_s=_PROBE_SECONDS)
        except NoAnswer:
            return NODE_LOST if await nodes.has_left(self.node) else None
        return None


def rank_error(error: Exception) -> RankError:
    """Read what Ray says of a failed rank: a dead process, one that was preempted, or an exception in the rank."""
    from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError

    # Train wraps what its health check met in an error of its own.
    cause = getattr(error, "health_check_failure", error)
    text = " ".join(str(cause).split())
    if isinstance(cause, OutOfMemoryError):
        why = "Ray's memory monitor ended it, because its node was running out of memory"
        return RankError("died", f"{why}: {text}"[:LONGEST_TEXT], "rank died: host memory exhausted")
    if not isinstance(cause, RayActorError):
        return RankError("raised", text[:LONGEST_TEXT])
    if cause.preempted:
        return RankError("preempted", text[:LONGEST_TEXT], "node preempted")
    # Ray's message is a page of guesses; between these two labels is what it knows.
    detail = (text.partition("Worker exit detail: ")[2] or text).partition(" Some common causes")[0]
    error_name = UNREACHABLE if isinstance(cause, ActorUnavailableError) else UNEXPLAINED
    return RankError("died", detail[:LONGEST_TEXT], error_name)
