"""Runs attempts without running them: lanes over a fake clock; implements :class:`golfray.sweep.executor.Executor`."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence

from golfray.sweep.executor import Finished, Holding, Job, JobEvent
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.sim.attempt import simulate
from golfray.sweep.sim.clock import FakeClock
from golfray.sweep.sim.law import unknown_paths
from golfray.sweep.sim.simulation import Simulation

SIMULATED = "SIMULATED: nothing is trained; every score, size and time comes from a law fitted to public numbers"


class SimulatedExecutor:
    """Takes jobs in order, a lane each, and tells what happens to them in the order of the fake ``clock``.

    ``workers``: ranks of a lane. ``limits``: after what silence a hung attempt ends. ``knobs``: paths that the study
    varies, so that :meth:`describe` can name those of which the law knows nothing.
    """

    def __init__(
        self,
        simulation: Simulation,
        clock: FakeClock,
        *,
        workers: int,
        limits: PhaseLimits | None = None,
        knobs: Sequence[str] = (),
    ) -> None:
        self._simulation = simulation
        self._clock = clock
        self._workers = workers
        self._limits = limits or PhaseLimits()
        self._knobs = tuple(knobs)
        self._free = [f"sim-{number}" for number in reversed(range(simulation.lanes))]
        self._queue: deque[Job] = deque()
        self._known: set[str] = set()
        # When each running job is heard of next; what is heard then and later; on which lane it runs.
        self._next: list[tuple[float, int, str]] = []
        self._coming: dict[str, deque[tuple[float, JobEvent]]] = {}
        self._lane_of: dict[str, str] = {}
        self._order = itertools.count()
        self._ended: list[JobEvent] = []
        self._closed = False

    @property
    def slots(self) -> int:
        """How many attempts run at once."""
        return self._simulation.lanes

    @property
    def holding(self) -> Holding:
        """Each lane is a node of its own, the first one the head; each rank has a GPU."""
        return Holding(self._simulation.lanes, self._simulation.lanes * self._workers)

    def news(self) -> list[str]:
        """Nothing: its lanes stay."""
        return []

    def hold_until(self, moment: float) -> None:
        """Nothing is held."""

    def describe(self) -> list[str]:
        """Says first that all this is simulated, then on what."""
        simulation = self._simulation
        lanes = "1 simulated lane" if simulation.lanes == 1 else f"{simulation.lanes} simulated lanes"
        shares = {name: getattr(simulation, name) for name in ("broken", "crash", "preempt", "hang", "slow")}
        wrong = ", ".join(f"{name} {share:g}" for name, share in shares.items() if share)
        lines = [
            SIMULATED,
            f"{lanes} of {self._workers} workers, law {simulation.scale}, seed {simulation.seed}"
            + (f"; shares of what goes wrong: {wrong}" if wrong else ""),
        ]
        unknown = unknown_paths(self._knobs)
        return (
            [*lines, f"the law knows nothing of {', '.join(unknown)}, which changes nothing here"] if unknown else lines
        )

    def submit(self, job: Job) -> None:
        """Queue a job. Raises ``ValueError`` on a job_id used before, ``RuntimeError`` once closed."""
        if self._closed:
            raise RuntimeError("no job can be submitted: the executor is closed")
        if job.job_id in self._known:
            raise ValueError(f"job {job.job_id} was submitted before; every attempt needs its own job_id")
        self._known.add(job.job_id)
        self._queue.append(job)

    def events(self, timeout: float) -> list[JobEvent]:
        """What happens next, after moving the clock there; nothing, ``timeout`` seconds on, where nothing can."""
        found, self._ended = self._ended, []
        if found or self._closed:
            return found
        self._hand_out()
        if not self._next:
            self._clock.move_to(self._clock.now() + timeout)
            return []
        moment = self._next[0][0]
        self._clock.move_to(moment)
        while self._next and self._next[0][0] == moment:
            found.append(self._pop())
        return found

    def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end: at once where it is queued, when it would be heard of next where it runs.

        It ends as itself where that would be its end. Raises ``ValueError`` for a job that was never submitted; one
        that has ended is left alone.
        """
        if job_id not in self._known:
            raise ValueError(f"job {job_id} was never submitted")
        cancelled = Finished(job_id, Outcome(Kind.CANCELLED, reason))
        for job in self._queue:
            if job.job_id == job_id:
                self._queue.remove(job)
                self._ended.append(cancelled)
                return
        coming = self._coming.get(job_id)
        if coming is not None and not isinstance(coming[0][1], Finished):
            self._coming[job_id] = deque([(coming[0][0], cancelled)])

    def close(self) -> None:
        """End everything; jobs that were open finish as ``cancelled``, which :meth:`events` still tells."""
        if self._closed:
            return
        self._closed = True
        ended = Outcome(Kind.CANCELLED, "the executor was closed")
        self._ended += [Finished(job_id, ended) for job_id in (*self._coming, *(job.job_id for job in self._queue))]
        self._queue.clear()
        self._coming.clear()
        self._next.clear()

    def __enter__(self) -> SimulatedExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _hand_out(self) -> None:
        """Every free lane takes a job."""
        now = self._clock.now()
        while self._queue and self._free:
            job, lane = self._queue.popleft(), self._free.pop()
            timeline = simulate(self._simulation, job, lane, self._workers, self._limits)
            self._coming[job.job_id] = deque((now + after, event) for after, event in timeline)
            self._lane_of[job.job_id] = lane
            self._expect(job.job_id)

    def _expect(self, job_id: str) -> None:
        heapq.heappush(self._next, (self._coming[job_id][0][0], next(self._order), job_id))

    def _pop(self) -> JobEvent:
        _, _, job_id = heapq.heappop(self._next)
        _, event = self._coming[job_id].popleft()
        if isinstance(event, Finished):
            del self._coming[job_id]
            self._free.append(self._lane_of.pop(job_id))
        else:
            self._expect(job_id)
        return event
