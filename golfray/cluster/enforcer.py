"""What becomes of a job that is late: its ranks are looked at, it is asked to stop, and at last its lane is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from golfray.cluster.deadlines import Overdue, overdue
from golfray.cluster.endings import forced_outcome, lane_failed_outcome
from golfray.cluster.lane_book import LaneBook
from golfray.cluster.ledger import Entry, Ledger, Stage
from golfray.cluster.nodes import Nodes
from golfray.cluster.stacks import describe_stacks, keep_stacks, stacks_of_ranks
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind, Outcome

# The controller needs a poll or two to say which rank died; a crash is worded without it after this long.
SETTLE_SECONDS = 10.0


class Enforcer:
    """Looks at the unfinished jobs of ``ledger`` again and again.

    ``cancel_grace_s``: how long a job may take to end cooperatively. ``limits``: a job that is longer in a phase is
    taken for hung. ``study_folder``: paths are told relative to it. ``nodes``: asks the machines that ranks run on.
    ``notify``: tells whoever waits that a job has changed between two looks.
    """

    def __init__(
        self,
        ledger: Ledger,
        lanes: LaneBook,
        cancel_grace_s: float,
        limits: PhaseLimits,
        study_folder: Path,
        nodes: Nodes,
        notify: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._cancel_grace_s = cancel_grace_s
        self._limits = limits
        self._study_folder = study_folder
        self._nodes = nodes
        self._notify = notify
        # The event loop itself only has weak references.
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self, now: float) -> None:
        """Do what is due at ``now``, seconds of the ledger's clock; raises what went wrong with it since the last."""
        self._start_waits_anew(now)
        for entry in self._ledger.unfinished():
            self._enforce(entry, now)
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    def ask_to_stop(self, entry: Entry, reason: str, error: str | None) -> None:
        """The first one to ask gives the reason; ``error`` None: the job was cancelled."""
        if entry.stop_reason is None:
            entry.stop_reason, entry.stop_error, entry.cancelled = reason, error, error is None
            entry.stop_by = time.monotonic() + self._cancel_grace_s

    def _start_waits_anew(self, now: float) -> None:
        """A job waits for a lane only while one is free for it: not taken by another, nor by those before it."""
        busy = sum(entry.stage is Stage.RUNNING for entry in self._ledger.unfinished())
        free = self._lanes.usable() - busy
        for entry in self._ledger.unfinished():
            if entry.stage is not Stage.RUNNING:
                if free <= 0:
                    entry.waiting_since = now
                free -= 1

    def _enforce(self, entry: Entry, now: float) -> None:
        """A crash to be worded, the grace after a stop was asked for, the limits of the phases."""
        if entry.explaining:
            return  # its lane has ended, and whoever asks why ends the job
        if entry.crashed_at is not None and now > entry.crashed_at + SETTLE_SECONDS:
            self._ledger.finish(entry, lane_failed_outcome(entry, {}, now))
        elif entry.stop_by is not None and now > entry.stop_by:
            how = f"it did not stop within {self._cancel_grace_s:g} s, its lane was killed"
            self._ledger.finish(entry, forced_outcome(entry, how, now))
            self._in_background(self._kill_lane(entry))
        elif entry.stop_reason is None and not entry.hung and (late := overdue(entry, self._limits, now)) is not None:
            entry.hung = True
            self._in_background(self._end_hung(entry, late))

    async def _end_hung(self, entry: Entry, late: Overdue) -> None:
        """Look at the ranks while they still hang, then ask the job to stop; one that never began ends at once."""
        lane, began = self._lanes.of(entry), entry.stage is Stage.RUNNING
        words = [late.describe()]
        if lane is not None:
            stacks = await stacks_of_ranks(self._nodes, lane.ranks)
            words += [describe_stacks(stacks), keep_stacks(stacks, Path(entry.job.folder), self._study_folder)]
        reason = "; ".join(filter(None, words))
        if entry.stage is Stage.RUNNING and began:
            self.ask_to_stop(entry, reason, late.error)
        elif entry.stage is Stage.RUNNING:
            entry.hung = False  # it began after all, while its ranks were looked at
        elif entry.stage is not Stage.FINISHED:
            self._ledger.finish(entry, Outcome(Kind.CRASHED, reason, error=late.error))
            await self._kill_lane(entry)
        await self._notify()

    async def _kill_lane(self, entry: Entry) -> None:
        """End the ranks that a job was given to; Train then starts the lane anew."""
        lane = self._lanes.of(entry)
        if lane is not None:
            await asyncio.gather(*(process.kill(self._nodes) for process in lane.ranks.values()))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))
