"""The broker: one actor between the study, Tune's trials and the ranks of every lane.

A job goes from the study through Tune to the first lane that is free. All ranks of a lane get the same jobs in the
same order; a job counts as begun when every rank has taken it, so a lane that dies before that costs nothing and a
job that has begun is never run again. The methods run in one event loop, one at a time between two awaits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.cluster.deaths import explain_death
from golfray.cluster.endings import own_outcome
from golfray.cluster.enforcer import SETTLE_SECONDS, Enforcer
from golfray.cluster.lane_book import LaneBook
from golfray.cluster.ledger import Entry, Ledger, Stage
from golfray.cluster.nodes import Nodes
from golfray.cluster.rank_output import rank_log
from golfray.cluster.rank_probe import RankProbe
from golfray.cluster.ranks import RankError, RankProcess, Seat
from golfray.cluster.roll_call import RollCall
from golfray.sweep.executor import Holding, Job, JobEvent
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind, Outcome

# What `take` answers once the study is over.
NO_MORE_JOBS = ""

# A node that is gone is replaced within minutes, if at all; the others cost their price meanwhile.
ROOM_SECONDS = 900.0

_WATCH_SECONDS = 0.5


class Broker:
    """Keeps the ledger.

    ``cancel_grace_s``: how long a job may take to end cooperatively. ``limits``: a job that is longer in a phase is
    taken for hung. ``study_folder``: paths are told relative to it. ``nodes``: asks the machines that ranks run on.
    ``refuse_slower``: a node whose matrix products take so many times as long as others' is refused; None: none is.
    """

    def __init__(
        self,
        workers: int,
        lanes: list[str],
        cancel_grace_s: float,
        limits: PhaseLimits,
        study_folder: Path,
        nodes: Nodes,
        refuse_slower: float | None = None,
    ) -> None:
        self._workers = workers
        self._nodes = nodes
        self._ledger = Ledger()
        self._lanes = LaneBook(lanes, self._ledger)
        self._enforcer = Enforcer(self._ledger, self._lanes, cancel_grace_s, limits, study_folder, nodes, self._notify)
        self._closing_s = cancel_grace_s + SETTLE_SECONDS
        self._closed = False
        self._changed = asyncio.Condition()
        self._holding: Holding | None = None
        self._roll_call = RollCall(self._lanes, workers, refuse_slower, self._until, self._notify)

    # --- the study's side ---

    async def submit(self, job: Job) -> None:
        """Queue a job; where no lane is left it ends at once. Raises ``ValueError`` on a job_id used before."""
        entry = self._ledger.add(job, time.monotonic())
        if self._closed:
            self._ledger.finish(entry, Outcome(Kind.CANCELLED, "the executor is closed"))
        self._lanes.fail_without()
        await self._notify()

    async def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end: at once where it has not begun, at its next report where it runs."""
        entry = self._ledger[job_id]
        if entry.stage is Stage.FINISHED:
            return
        if entry.stage is Stage.RUNNING:
            self._enforcer.ask_to_stop(entry, reason, None)
        else:
            self._ledger.finish(entry, Outcome(Kind.CANCELLED, reason))
        await self._notify()

    async def events(self, timeout: float) -> list[JobEvent]:
        """What happened since the last call, waiting up to ``timeout`` seconds for the first."""
        await self._until(lambda: self._ledger.has_events, timeout)
        return self._ledger.take_events()

    async def lanes(self) -> tuple[int, list[str]]:
        """How many jobs can run at once, and what happened to lanes since the last call, for a person."""
        return self._lanes.usable(), self._lanes.take_news()

    async def holding(self) -> Holding | None:
        """What the cluster held when it was looked at last; None where nobody looks, since it never changes."""
        return self._holding

    async def close(self, reason: str) -> None:
        """Cancel what is unfinished, answer Tune and the ranks that nothing more comes, wait for the last end."""
        self._closed = True
        for entry in self._ledger.unfinished():
            await self.cancel(entry.job.job_id, reason)
        await self._notify()
        await self._until(lambda: not self._ledger.unfinished(), self._closing_s)

    async def watch(self) -> str | None:
        """Enforce the limits until closed and done; the executor starts this once.

        Returns why nothing can run any more: for too long no node has had room for a lane.
        """
        had_room = time.monotonic()
        while not (self._closed and not self._ledger.unfinished()):
            await asyncio.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            self._enforcer.look(now)
            had_room = now if self._lanes.usable() or not self._lanes.waits_for_room() else had_room
            if now > had_room + ROOM_SECONDS:
                return f"no node of the cluster has had room for a lane for {ROOM_SECONDS:g} s"
            await self._notify()
        return None

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
            self._lanes.fail_without()
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
            self._lanes.retire(lane, {})
            lane.group = lane.last_group = seat.group
        lane.ranks[seat.rank] = process
        await self._notify()
        return not (self._closed or lane.lost)

    async def equip(self, seat: Seat, faults: list[str]) -> bool:
        """A rank says what its node lacks. False: go home, the lane is refused."""
        return await self._roll_call.equip(seat, faults)

    async def probed(self, seat: Seat, probe: RankProbe) -> bool:
        """A rank says what it measured. False: go home, the lane is refused."""
        return await self._roll_call.probed(seat, probe)

    async def next_job(self, seat: Seat, index: int) -> Job | None:
        """Job number ``index`` of this incarnation, the same for every rank; None: go home."""
        lane = self._lanes[seat.lane]
        await self._until(
            lambda: (
                lane.group != seat.group
                or len(lane.jobs) > index
                or self._closed
                or lane.leaves
                or self._ledger.first(Stage.READY) is not None
            ),
            None,
        )
        if lane.group != seat.group or ((self._closed or lane.leaves) and len(lane.jobs) <= index):
            return None
        if len(lane.jobs) <= index:
            entry = self._ledger.first(Stage.READY)
            assert entry is not None
            self._ledger.move(entry, Stage.OFFERED)
            entry.lane, entry.group, entry.taken_by = seat.lane, seat.group, set()
            lane.jobs.append(entry)
            await self._notify()
        return lane.jobs[index].job

    async def begin(self, seat: Seat, job_id: str, oom_kills: dict[str, int]) -> bool:
        """A rank has taken the job; answers when all have. False: it was cancelled meanwhile, skip it.

        ``oom_kills``: what the kernel of its node had counted by then.
        """
        entry = self._ledger[job_id]
        if entry.stage is Stage.OFFERED and entry.group == seat.group:
            entry.taken_by.add(seat.rank)
            entry.oom_kills[seat.rank] = oom_kills
            if len(entry.taken_by) == self._workers:
                self._ledger.start(entry, time.monotonic(), self._lanes[seat.lane].nodes)
                self._lanes[seat.lane].worked = True
            await self._notify()
        await self._until(lambda: entry.stage is not Stage.OFFERED or entry.group != seat.group, None)
        return len(entry.taken_by) == self._workers and entry.group == seat.group

    async def enter(self, seat: Seat, job_id: str, phase: str) -> None:
        """Rank 0 begins a phase of its job."""
        entry = self._ledger[job_id]
        if entry.stage is Stage.RUNNING and entry.group == seat.group:
            self._ledger.enter(entry, phase, time.monotonic())
            await self._notify()

    async def report(self, seat: Seat, job_id: str, point: dict[str, float]) -> str | None:
        """One point of the curve, from rank 0; answers with a reason to stop, or None."""
        entry = self._ledger[job_id]
        if entry.stage is not Stage.RUNNING or entry.group != seat.group:
            return "this job is over"
        self._ledger.progress(entry, point, time.monotonic())
        await self._notify()
        return entry.stop_reason

    async def end(self, seat: Seat, job_id: str, outcome: dict[str, Any] | None, crash: RankError | None) -> None:
        """A rank is through with the job: rank 0 brings the outcome, a rank that raised says how."""
        entry = self._ledger[job_id]
        if entry.stage is not Stage.RUNNING or entry.group != seat.group:
            return
        if crash is not None:
            entry.crashes[seat.rank] = crash
            entry.crashed_at = entry.crashed_at or time.monotonic()
        elif outcome is not None:
            self._ledger.finish(entry, own_outcome(entry, outcome))
            await self._notify()

    async def recycle(self, seat: Seat, reason: str) -> None:
        """A rank should run no more jobs; answers when it may leave, which ends its peers: the last one has ended."""
        lane = self._lanes[seat.lane]
        if lane.group == seat.group:
            self._lanes.recycle(seat.lane, reason)
            await self._notify()
        await self._until(
            lambda: lane.group != seat.group or all(entry.stage is not Stage.RUNNING for entry in lane.jobs), None
        )

    # --- the lanes' side ---

    async def resize(self, room: int, holding: Holding) -> list[str]:
        """The cluster has ``holding`` and room for ``room`` lanes; returns the names of those to be started."""
        self._holding = holding
        names = [] if self._closed else self._lanes.resize(room)
        await self._notify()
        return names

    async def group_failed(self, lane_name: str, errors: dict[int, RankError]) -> None:
        """Train's controller saw ranks of a lane fail and is about to restart all of them.

        When one rank dies, its peers often raise before the death is seen, so those that said nothing are asked.
        """
        lane = self._lanes[lane_name]
        group, ranks = lane.group, dict(lane.ranks)
        running = lane.jobs[-1] if lane.jobs and lane.jobs[-1].stage is Stage.RUNNING else None
        if running is not None:
            running.explaining = True
        try:
            errors = await self._explained(running, ranks, errors)
        finally:
            if running is not None:
                running.explaining = False
        if lane.group == group:
            self._lanes.retire(lane, errors)
        self._lanes.fail_without()
        await self._notify()

    async def lane_ended(self, lane_name: str, reason: str) -> tuple[bool, str | None]:
        """A lane's trainer has ended: whether to start another one, and the placement group it may still hold.

        A trainer that never ran a job would only fail again.
        """
        lane = self._lanes[lane_name]
        self._lanes.retire(lane, {}, reason)
        again = not self._closed and self._lanes.goes_on(lane_name, reason)
        self._lanes.fail_without()
        await self._notify()
        return again, lane.last_group

    # --- what they share ---

    async def _explained(
        self, running: Entry | None, ranks: dict[int, RankProcess], errors: dict[int, RankError]
    ) -> dict[int, RankError]:
        """The errors with those of ranks that said nothing and the cause of every death, as far as there is a sign."""
        if all(error.kind == "raised" for error in errors.values()):
            silent = [rank for rank in ranks if rank not in errors]
            found = await asyncio.gather(*(ranks[rank].probe(self._nodes) for rank in silent))
            errors = {**errors, **{rank: error for rank, error in zip(silent, found, strict=True) if error is not None}}
        if running is None:
            return errors

        async def explain(rank: int, error: RankError) -> RankError:
            log = rank_log(Path(running.job.folder), rank)
            return await explain_death(self._nodes, ranks[rank], error, log, running.oom_kills.get(rank, {}))

        dead = [rank for rank, error in errors.items() if error.kind == "died" and rank in ranks]
        causes = await asyncio.gather(*(explain(rank, errors[rank]) for rank in dead))
        return {**errors, **dict(zip(dead, causes, strict=True))}

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
