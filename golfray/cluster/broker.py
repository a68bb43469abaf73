"""The broker: one actor between the study, Tune's trials and the ranks of every lane.

A job goes from the study through Tune to the first lane that is free. All ranks of a lane get the same jobs in the
same order; a job counts as begun when every rank has taken it, so a lane that dies before that costs nothing and a
job that has begun is never run again. The methods run in one event loop, one at a time between two awaits.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from golfray.cluster.ledger import Entry, Ledger, Stage, crash_outcome, own_outcome
from golfray.cluster.ranks import RankError, RankProcess, Seat
from golfray.sweep.executor import Job, JobEvent
from golfray.sweep.outcome import Kind, Outcome

# What `take` answers once the study is over.
NO_MORE_JOBS = ""

_WATCH_SECONDS = 0.5
# The controller needs a poll or two to say which rank died; a crash is worded without it after this long.
_SETTLE_SECONDS = 10.0
_LOST_AFTER_IDLE_FAILURES = 3


@dataclasses.dataclass
class _Lane:
    group: str | None = None
    ranks: dict[int, RankProcess] = dataclasses.field(default_factory=dict)
    jobs: list[Entry] = dataclasses.field(default_factory=list)
    idle_failures: int = 0
    lost: str | None = None


class Broker:
    """Keeps the ledger.

    ``cancel_grace_s``: how long a job may take to end cooperatively. ``silence_s``: a running job that reports
    nothing for this long is taken for hung.
    """

    def __init__(
        self,
        workers: int,
        lanes: list[str],
        cancel_grace_s: float,
        silence_s: float,
    ) -> None:
        self._workers = workers
        self._lanes = {name: _Lane() for name in lanes}
        self._cancel_grace_s = cancel_grace_s
        self._silence_s = silence_s
        self._ledger = Ledger()
        self._closed = False
        self._changed = asyncio.Condition()
        self._processes: list[dict[str, Any]] = []

    # --- the study's side ---

    async def submit(self, job: Job) -> None:
        """Queue a job; where no lane is left it ends at once. Raises ``ValueError`` on a job_id used before."""
        entry = self._ledger.add(job)
        if self._closed:
            self._ledger.finish(entry, Outcome(Kind.CANCELLED, "the executor is closed"))
        self._fail_without_lanes()
        await self._notify()

    async def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end: at once where it has not begun, at its next report where it runs."""
        entry = self._ledger[job_id]
        if entry.stage is Stage.FINISHED:
            return
        if entry.stage is Stage.RUNNING:
            self._ask_to_stop(entry, reason, cancelled=True)
        else:
            self._ledger.finish(entry, Outcome(Kind.CANCELLED, reason))
        await self._notify()

    async def events(self, timeout: float) -> list[JobEvent]:
        """What happened since the last call, waiting up to ``timeout`` seconds for the first."""
        await self._until(lambda: self._ledger.has_events, timeout)
        return self._ledger.take_events()

    async def processes(self) -> list[dict[str, Any]]:
        """The ranks that joined since the last call: lane, rank, pid, node."""
        joined, self._processes = self._processes, []
        return joined

    async def close(self, reason: str) -> None:
        """Cancel what is unfinished, answer Tune and the ranks that nothing more comes, wait for the last end."""
        self._closed = True
        for entry in self._ledger.unfinished():
            await self.cancel(entry.job.job_id, reason)
        await self._notify()
        await self._until(lambda: not self._ledger.unfinished(), self._cancel_grace_s + _SETTLE_SECONDS)

    async def watch(self) -> None:
        """Enforce the deadlines until closed and done; the executor starts this once."""
        while not (self._closed and not self._ledger.unfinished()):
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            for entry in self._ledger.unfinished():
                if entry.stage is Stage.RUNNING:
                    self._enforce(entry, now)
            await self._notify()

    # --- Tune's side ---

    async def take(self, wait_s: float) -> str | None:
        """The next job's name for Tune's searcher; None where ``wait_s`` seconds bring none, "" at the end."""
        await self._until(lambda: self._closed or self._ledger.first(Stage.SUBMITTED) is not None, wait_s)
        entry = self._ledger.first(Stage.SUBMITTED)
        if entry is None:
            return NO_MORE_JOBS if self._closed else None
        self._ledger.move(entry, Stage.HANDED)
        return entry.job.job_id

    async def pass_on(self, job_id: str) -> dict[str, Any]:
        """A Tune trial offers its job to the lanes and waits for the outcome (dictionary form)."""
        entry = self._ledger[job_id]
        if entry.stage is Stage.HANDED:
            self._ledger.move(entry, Stage.READY)
            self._fail_without_lanes()
            await self._notify()
        await self._until(lambda: entry.stage is Stage.FINISHED, None)
        assert entry.outcome is not None
        return entry.outcome.to_dict()

    async def abandon(self, job_id: str, reason: str) -> None:
        """A Tune trial ended by error: its job ends too, unless a lane was already offered it."""
        entry = self._ledger[job_id]
        if entry.stage in (Stage.SUBMITTED, Stage.HANDED):
            self._ledger.finish(entry, Outcome(Kind.CRASHED, reason))
            await self._notify()

    # --- the ranks' side ---

    async def join(self, seat: Seat, process: RankProcess) -> bool:
        """A rank is up. False: go home, the study is over or this lane has failed too often."""
        lane = self._lanes[seat.lane]
        if lane.group != seat.group:
            self._retire(lane, {})
            lane.group = seat.group
        lane.ranks[seat.rank] = process
        self._processes.append({"lane": seat.lane, "rank": seat.rank, "pid": process.pid, "node": process.node})
        await self._notify()
        return not (self._closed or lane.lost)

    async def next_job(self, seat: Seat, index: int) -> Job | None:
        """Job number ``index`` of this incarnation, the same for every rank; None: go home."""
        lane = self._lanes[seat.lane]
        await self._until(
            lambda: (
                lane.group != seat.group
                or len(lane.jobs) > index
                or self._closed
                or self._ledger.first(Stage.READY) is not None
            ),
            None,
        )
        if lane.group != seat.group or (self._closed and len(lane.jobs) <= index):
            return None
        if len(lane.jobs) <= index:
            entry = self._ledger.first(Stage.READY)
            assert entry is not None
            self._ledger.move(entry, Stage.OFFERED)
            entry.lane, entry.group, entry.taken_by = seat.lane, seat.group, set()
            lane.jobs.append(entry)
            await self._notify()
        return lane.jobs[index].job

    async def begin(self, seat: Seat, job_id: str) -> bool:
        """A rank has taken the job; answers when all have. False: it was cancelled meanwhile, skip it."""
        entry = self._ledger[job_id]
        if entry.stage is Stage.OFFERED and entry.group == seat.group:
            entry.taken_by.add(seat.rank)
            if len(entry.taken_by) == self._workers:
                self._ledger.start(entry, time.monotonic())
            await self._notify()
        await self._until(lambda: entry.stage is not Stage.OFFERED or entry.group != seat.group, None)
        return len(entry.taken_by) == self._workers and entry.group == seat.group

    async def report(self, seat: Seat, job_id: str, point: dict[str, float]) -> str | None:
        """One point of the curve, from rank 0; answers with a reason to stop, or None."""
        entry = self._ledger[job_id]
        if entry.stage is not Stage.RUNNING or entry.group != seat.group:
            return "this job is over"
        self._ledger.progress(entry, point, time.monotonic())
        await self._notify()
        return entry.stop_reason

    async def end(self, seat: Seat, job_id: str, outcome: dict[str, Any] | None, crash: str | None) -> None:
        """A rank is through with the job: rank 0 brings the outcome, a rank that raised brings its words."""
        entry = self._ledger[job_id]
        if entry.stage is not Stage.RUNNING or entry.group != seat.group:
            return
        if crash is not None:
            entry.crashes[seat.rank] = crash
            entry.crashed_at = entry.crashed_at or time.monotonic()
        elif outcome is not None:
            self._ledger.finish(entry, own_outcome(entry, outcome))
            await self._notify()

    # --- the lanes' side ---

    async def group_failed(self, lane_name: str, errors: dict[int, RankError]) -> None:
        """Train's controller saw ranks of a lane fail and is about to restart all of them.

        When one rank dies, its peers often raise before the death is seen, so those that said nothing are asked.
        """
        lane = self._lanes[lane_name]
        group, silent = lane.group, [rank for rank in lane.ranks if rank not in errors]
        if all(error.kind == "raised" for error in errors.values()):
            found = await asyncio.gather(*(lane.ranks[rank].probe() for rank in silent))
            errors = {**errors, **{rank: error for rank, error in zip(silent, found, strict=True) if error is not None}}
        if lane.group == group:
            self._retire(lane, errors)
        self._fail_without_lanes()
        await self._notify()

    async def lane_ended(self, lane_name: str, reason: str) -> None:
        """A lane is gone for good."""
        lane = self._lanes[lane_name]
        self._retire(lane, {})
        lane.lost = lane.lost or reason
        self._fail_without_lanes()
        await self._notify()

    # --- what they share ---

    def _retire(self, lane: _Lane, errors: dict[int, RankError]) -> None:
        """End an incarnation: its begun job is over, one merely offered goes back to the head of the queue."""
        if lane.group is None:
            return
        current = lane.jobs[-1] if lane.jobs else None
        if current is not None and current.stage is Stage.OFFERED:
            self._ledger.move(current, Stage.READY)
            current.lane = current.group = None
            lane.jobs.pop()
        elif current is not None and current.stage is Stage.RUNNING:
            self._end_by_crash(current, errors)
        if lane.jobs:
            lane.idle_failures = 0
        elif errors:
            lane.idle_failures += 1
            rank, error = next(iter(errors.items()))
            if lane.idle_failures >= _LOST_AFTER_IDLE_FAILURES:
                lane.lost = f"failed {lane.idle_failures} times without a job (rank {rank} {error.kind}: {error.text})"
        lane.group, lane.ranks, lane.jobs = None, {}, []

    def _end_by_crash(self, entry: Entry, errors: dict[int, RankError]) -> None:
        if entry.cancelled:
            outcome = Outcome(Kind.CANCELLED, f"{entry.stop_reason} (its lane ended before it could stop)")
        else:
            outcome = crash_outcome(entry, errors)
        self._ledger.finish(entry, outcome)

    def _enforce(self, entry: Entry, now: float) -> None:
        """The deadlines of a running job: silence, the grace after a stop was asked for, a crash to be worded."""
        if entry.crashed_at is not None and now > entry.crashed_at + _SETTLE_SECONDS:
            self._end_by_crash(entry, {})
        elif entry.stop_by is not None and now > entry.stop_by:
            kind = Kind.CANCELLED if entry.cancelled else Kind.CRASHED
            reason = f"{entry.stop_reason} (it did not stop within {self._cancel_grace_s:g} s, its lane was killed)"
            self._ledger.finish(entry, Outcome(kind, reason))
            self._kill_lane(entry)
        elif entry.stop_reason is None and now > entry.last_sign + self._silence_s:
            self._ask_to_stop(entry, f"hung: no report for {self._silence_s:g} s", cancelled=False)

    def _ask_to_stop(self, entry: Entry, reason: str, cancelled: bool) -> None:
        if entry.stop_reason is None:
            entry.stop_reason, entry.cancelled = reason, cancelled
            entry.stop_by = time.monotonic() + self._cancel_grace_s

    def _kill_lane(self, entry: Entry) -> None:
        assert entry.lane is not None
        lane = self._lanes[entry.lane]
        if lane.group == entry.group:
            for process in lane.ranks.values():
                process.kill()

    def _fail_without_lanes(self) -> None:
        """Where every lane is lost, a queued job would wait for ever: it ends with the reason instead."""
        if not all(lane.lost for lane in self._lanes.values()):
            return
        reasons = "; ".join(f"{name} {lane.lost}" for name, lane in self._lanes.items())
        for entry in self._ledger.unfinished():
            self._ledger.finish(entry, Outcome(Kind.CRASHED, f"no lane is left: {reasons}"))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for the condition; False where ``timeout`` seconds passed without it."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(condition), timeout)
            except TimeoutError:
                return False
        return True
