"""What the broker knows of every job: its stage, the legal moves between stages, and how its end is worded."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from golfray.cluster.ranks import RankError
from golfray.sweep.executor import Finished, Job, JobEvent, Progress, Started
from golfray.sweep.outcome import Kind, Outcome


class Stage(enum.Enum):
    """Where a job is. A job enters FINISHED once and never leaves it: one end for every job."""

    SUBMITTED = "waits for Tune to ask"
    HANDED = "Tune has it, its trial has not passed it on yet"
    READY = "waits for a lane"
    OFFERED = "a lane's ranks are taking it, none has begun"
    RUNNING = "every rank of a lane has taken it"
    FINISHED = "has its outcome"


# RUNNING leads nowhere but to FINISHED, so nothing is ever run twice.
MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.SUBMITTED: frozenset({Stage.HANDED, Stage.FINISHED}),
    Stage.HANDED: frozenset({Stage.READY, Stage.FINISHED}),
    Stage.READY: frozenset({Stage.OFFERED, Stage.FINISHED}),
    Stage.OFFERED: frozenset({Stage.READY, Stage.RUNNING, Stage.FINISHED}),
    Stage.RUNNING: frozenset({Stage.FINISHED}),
    Stage.FINISHED: frozenset(),
}


@dataclasses.dataclass
class Entry:
    """One job's line in the ledger. Times are seconds of a monotonic clock."""

    job: Job
    stage: Stage = Stage.SUBMITTED
    lane: str | None = None
    group: str | None = None
    taken_by: set[int] = dataclasses.field(default_factory=set)
    stop_reason: str | None = None
    stop_by: float | None = None
    cancelled: bool = False
    last_sign: float = 0.0
    crashes: dict[int, str] = dataclasses.field(default_factory=dict)
    crashed_at: float | None = None
    outcome: Outcome | None = None


class Ledger:
    """Jobs by name, in the order of their submission, and the events that their moves produce."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._open: dict[str, Entry] = {}
        self._events: list[JobEvent] = []

    def __getitem__(self, job_id: str) -> Entry:
        return self._entries[job_id]

    def add(self, job: Job) -> Entry:
        """A new job. Raises ``ValueError`` where the name was used before."""
        if job.job_id in self._entries:
            raise ValueError(f"job {job.job_id} was submitted before; every attempt needs its own job_id")
        entry = self._entries[job.job_id] = self._open[job.job_id] = Entry(job)
        return entry

    def first(self, stage: Stage) -> Entry | None:
        """The earliest submitted unfinished job at this stage."""
        return next((entry for entry in self._open.values() if entry.stage is stage), None)

    def unfinished(self) -> list[Entry]:
        """Every job that has no outcome yet."""
        return list(self._open.values())

    def move(self, entry: Entry, stage: Stage) -> None:
        """Change the stage. Raises ``RuntimeError`` on a move that the table does not have."""
        if stage not in MOVES[entry.stage]:
            raise RuntimeError(f"job {entry.job.job_id} cannot go from {entry.stage.name} to {stage.name}")
        entry.stage = stage

    def start(self, entry: Entry, now: float) -> None:
        """Every rank of its lane has taken the job."""
        assert entry.lane is not None
        self.move(entry, Stage.RUNNING)
        entry.last_sign = now
        self._events.append(Started(entry.job.job_id, entry.lane))

    def progress(self, entry: Entry, point: dict[str, float], now: float) -> None:
        """One point of the curve of a running job."""
        entry.last_sign = now
        metrics = {name: float(value) for name, value in point.items() if name != "step"}
        self._events.append(Progress(entry.job.job_id, int(point["step"]), metrics))

    def finish(self, entry: Entry, outcome: Outcome) -> None:
        """The job's one end."""
        self.move(entry, Stage.FINISHED)
        del self._open[entry.job.job_id]
        entry.outcome = outcome
        self._events.append(Finished(entry.job.job_id, outcome))

    def take_events(self) -> list[JobEvent]:
        """Everything since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def has_events(self) -> bool:
        """Whether :meth:`take_events` would return something."""
        return bool(self._events)


def own_outcome(entry: Entry, values: dict[str, Any]) -> Outcome:
    """What the trial itself returned; a stop that was a cancellation is called one."""
    outcome = Outcome.from_dict(values)
    if entry.cancelled and outcome.kind is Kind.STOPPED:
        return dataclasses.replace(outcome, kind=Kind.CANCELLED, reason=str(entry.stop_reason))
    if entry.stop_reason is not None and outcome.kind is Kind.STOPPED:
        return dataclasses.replace(outcome, kind=Kind.CRASHED, reason=str(entry.stop_reason))
    return outcome


def crash_outcome(entry: Entry, errors: dict[int, RankError]) -> Outcome:
    """The end of a job whose lane failed: a dead rank before a raising one, the first exception before its echoes.

    When a rank dies or raises, its peers' collectives fail a moment later; those say nothing about the cause.
    """
    gone = {rank: error for rank, error in sorted(errors.items()) if error.kind != "raised"}
    if gone:
        rank, error = next(iter(gone.items()))
        kind = Kind.PREEMPTED if error.kind == "preempted" else Kind.CRASHED
        return Outcome(kind, f"rank {rank} {error.kind}: {error.text}")
    reported = entry.crashes or {rank: error.text for rank, error in errors.items()}
    if not reported:
        return Outcome(Kind.CRASHED, f"{entry.lane} failed while it ran this job, and no rank said why")
    rank, text = next(iter(reported.items()))
    return Outcome(Kind.CRASHED, f"rank {rank}: {text}")
