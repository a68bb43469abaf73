"""What the broker knows of every job: its stage and phase, the legal moves between stages, and the events they make."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from golfray.cluster.ranks import RankError
from golfray.sweep.executor import Entered, Finished, Job, JobEvent, Progress, Started
from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Outcome


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
    """One job's line in the ledger. Times are seconds of a monotonic clock.

    ``waiting_since``: since when a lane was free and the job did not run. ``phase``: "start" until the run enters its
    first one. ``phases``: seconds of those that are over. ``step``: of the last report. ``reports_apart``: the longest
    from one sign of training to the next report; None before the first. ``oom_kills``: what each rank's node had
    counted by then. ``explaining``: its lane has failed and is asked why, which takes up to a minute and a half where a
    node is lost.
    """

    job: Job
    waiting_since: float
    stage: Stage = Stage.SUBMITTED
    lane: str | None = None
    group: str | None = None
    taken_by: set[int] = dataclasses.field(default_factory=set)
    phase: str = "start"
    phase_since: float = 0.0
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    last_sign: float = 0.0
    step: int | None = None
    reports_apart: float | None = None
    oom_kills: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict)
    stop_reason: str | None = None
    stop_error: str | None = None
    stop_by: float | None = None
    cancelled: bool = False
    hung: bool = False
    crashes: dict[int, RankError] = dataclasses.field(default_factory=dict)
    crashed_at: float | None = None
    explaining: bool = False
    outcome: Outcome | None = None

    def phases_until(self, now: float) -> dict[str, float]:
        """Seconds of every phase that was entered, the present one included; of a job that runs."""
        return {**self.phases, **({self.phase: now - self.phase_since} if self.phase != "start" else {})}


class Ledger:
    """Jobs by name, in the order of their submission, and the events that their moves produce."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._open: dict[str, Entry] = {}
        self._events: list[JobEvent] = []

    def __getitem__(self, job_id: str) -> Entry:
        return self._entries[job_id]

    def add(self, job: Job, now: float) -> Entry:
        """A new job. Raises ``ValueError`` where the name was used before."""
        if job.job_id in self._entries:
            raise ValueError(f"job {job.job_id} was submitted before; every attempt needs its own job_id")
        entry = self._entries[job.job_id] = self._open[job.job_id] = Entry(job, now)
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

    def start(self, entry: Entry, now: float, nodes: Sequence[NodeProbe] = ()) -> None:
        """Every rank of its lane, on ``nodes``, has taken the job."""
        assert entry.lane is not None
        self.move(entry, Stage.RUNNING)
        entry.phase_since = entry.last_sign = now
        self._events.append(Started(entry.job.job_id, entry.lane, tuple(nodes)))

    def enter(self, entry: Entry, phase: str, now: float) -> None:
        """A running job begins a phase; nothing new where it is told again."""
        if phase == entry.phase:
            return
        entry.phases = entry.phases_until(now)
        entry.phase, entry.phase_since, entry.last_sign = phase, now, now
        self._events.append(Entered(entry.job.job_id, phase))

    def progress(self, entry: Entry, point: dict[str, float], now: float) -> None:
        """One point of the curve of a running job; nothing new where it is told again."""
        if point["step"] == entry.step:
            return
        entry.step = int(point["step"])
        entry.reports_apart = max(entry.reports_apart or 0.0, now - entry.last_sign)
        entry.last_sign = now
        metrics = {name: float(value) for name, value in point.items() if name != "step"}
        self._events.append(Progress(entry.job.job_id, entry.step, metrics))

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
