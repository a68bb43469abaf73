"""The protocol between a study and whatever runs its attempts (Ray lanes, or the simulator)."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Outcome


@dataclasses.dataclass(frozen=True)
class Job:
    """One attempt to run: ``settings`` is the dictionary form of ``golfray.core.settings.RunSettings``."""

    job_id: str
    settings: dict[str, Any]
    folder: str


@dataclasses.dataclass(frozen=True)
class Started:
    """A lane has taken the job; ``nodes``: where it lies, and what they measured as it formed, empty if nothing did."""

    job_id: str
    lane: str
    nodes: tuple[NodeProbe, ...] = ()


@dataclasses.dataclass(frozen=True)
class Entered:
    """A running attempt has begun a phase: one of :data:`golfray.sweep.limits.PHASES` after "start"."""

    job_id: str
    phase: str


@dataclasses.dataclass(frozen=True)
class Progress:
    """One point of a running attempt's curve: ``step`` plus metric names and values."""

    job_id: str
    step: int
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Finished:
    """The attempt is over; exactly one of these follows every submitted job."""

    job_id: str
    outcome: Outcome


JobEvent = Started | Entered | Progress | Finished


@dataclasses.dataclass(frozen=True)
class Holding:
    """What an executor keeps from everybody else while it is open, idle or not: nodes, the head included, and GPUs."""

    nodes: int
    gpus: int


class Executor(Protocol):
    """Runs jobs; the study drives. All methods are called from the study's thread only."""

    @property
    def slots(self) -> int:
        """How many jobs can run at once."""

    @property
    def holding(self) -> Holding:
        """What is booked as long as this executor is open."""

    def news(self) -> list[str]:
        """What happened to its lanes since the last call, a line each; ``slots`` and ``holding`` may have changed."""

    def hold_until(self, moment: float) -> None:
        """By ``moment``, in unix seconds, the study has ended, whatever happens; infinite where nothing caps it.

        An executor that can have its nodes shut down sees to it that they are soon after, whoever has died by then.
        """

    def describe(self) -> list[str]:
        """Lines that say what ``slots`` is and how it follows from the machine."""

    def submit(self, job: Job) -> None:
        """Queue a job."""

    def events(self, timeout: float) -> list[JobEvent]:
        """Everything that happened since the last call, waiting at most ``timeout`` seconds for the first."""

    def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end cooperatively; it finishes as ``cancelled`` (or as itself, if it was faster)."""

    def close(self) -> None:
        """End everything this executor started, within a bounded time."""
