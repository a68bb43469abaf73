"""The ranks of a lane as others see them: a seat, the process on it, and how it failed.

Ray is imported inside functions: it reads its variables when it is imported, and ``environment`` sets them first.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

LONGEST_TEXT = 300

_PROBE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Seat:
    """One rank's place: ``group`` names the incarnation of the lane, new after every restart."""

    lane: str
    group: str
    rank: int


@dataclasses.dataclass(frozen=True)
class RankError:
    """How a rank failed: ``kind`` is "raised", "died" or "preempted"."""

    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class RankProcess:
    """The process on a seat, reached through its Ray actor; ``node`` is Ray's name of the machine."""

    actor: Any
    pid: int
    node: str

    def kill(self) -> None:
        """End the process by force; Train then restarts the lane."""
        import ray

        ray.kill(self.actor)

    async def probe(self) -> RankError | None:
        """How the process ended; None where it lives, or where no answer came in time."""
        from ray.exceptions import RayActorError

        try:
            await asyncio.wait_for(self.actor.__ray_ready__.remote(), _PROBE_SECONDS)
        except RayActorError as error:
            return rank_error(error)
        except TimeoutError:
            return None
        return None


def rank_error(error: Exception) -> RankError:
    """Read what Ray says of a failed rank: a dead process, one that was preempted, or an exception in the rank."""
    from ray.exceptions import RayActorError

    # Train wraps what its health check met in an error of its own.
    cause = getattr(error, "health_check_failure", error)
    text = " ".join(str(cause).split())
    if not isinstance(cause, RayActorError):
        return RankError("raised", text[:LONGEST_TEXT])
    # Ray's message is a page of guesses; between these two labels is what it knows.
    detail = (text.partition("Worker exit detail: ")[2] or text).partition(" Some common causes")[0]
    return RankError("preempted" if cause.preempted else "died", detail[:LONGEST_TEXT])
