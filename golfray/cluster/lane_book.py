"""What the broker knows of every lane: who is up in it, which jobs that incarnation was given, whether it is lost."""

from __future__ import annotations

import dataclasses
import time

from golfray.cluster.endings import lane_failed_outcome
from golfray.cluster.ledger import Entry, Ledger, Stage
from golfray.cluster.rank_probe import RankProbe
from golfray.cluster.ranks import RankError, RankProcess
from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Kind, Outcome

_LOST_AFTER_IDLE_FAILURES = 3


@dataclasses.dataclass
class LaneRecord:
    """One lane. ``group``, ``ranks`` and ``jobs`` are those of the incarnation that is up, if one is.

    So are ``equipped`` (what the node of each rank lacks), ``probes`` of its ranks, and ``nodes``, which follows from
    them once all are there. ``worked``: whether its present trainer has ever run a job; one that never has is not
    started again. ``lost``: why it is not started any more.
    """

    group: str | None = None
    last_group: str | None = None
    ranks: dict[int, RankProcess] = dataclasses.field(default_factory=dict)
    jobs: list[Entry] = dataclasses.field(default_factory=list)
    equipped: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    probes: dict[int, RankProbe] = dataclasses.field(default_factory=dict)
    nodes: list[NodeProbe] = dataclasses.field(default_factory=list)
    idle_failures: int = 0
    worked: bool = False
    lost: str | None = None


class LaneBook:
    """Lanes by name; what their ends mean for the jobs of ``ledger``."""

    def __init__(self, names: list[str], ledger: Ledger) -> None:
        self._lanes = {name: LaneRecord() for name in names}
        self._ledger = ledger

    def __getitem__(self, name: str) -> LaneRecord:
        return self._lanes[name]

    def of(self, entry: Entry) -> LaneRecord | None:
        """The lane that has the job, while it is the same incarnation that was given it."""
        lane = self._lanes[entry.lane] if entry.lane is not None else None
        return lane if lane is not None and lane.group == entry.group else None

    def up(self) -> list[LaneRecord]:
        """Lanes whose ranks are there, be they refused or not."""
        return [lane for lane in self._lanes.values() if lane.group is not None]

    def not_lost(self) -> int:
        """How many lanes still run jobs or may."""
        return sum(not lane.lost for lane in self._lanes.values())

    def retire(self, lane: LaneRecord, errors: dict[int, RankError], reason: str = "") -> None:
        """End an incarnation: its begun job is over, one merely offered goes back to the head of the queue."""
        if lane.group is None:
            return
        current = lane.jobs[-1] if lane.jobs else None
        if current is not None and current.stage is Stage.OFFERED:
            self._ledger.move(current, Stage.READY)
            current.lane = current.group = None
            lane.jobs.pop()
        elif current is not None and current.stage is Stage.RUNNING:
            self._ledger.finish(current, lane_failed_outcome(current, errors, time.monotonic(), reason))
        if lane.jobs:
            lane.idle_failures = 0
        elif errors:
            lane.idle_failures += 1
            rank, error = next(iter(errors.items()))
            if lane.idle_failures >= _LOST_AFTER_IDLE_FAILURES:
                lane.lost = f"failed {lane.idle_failures} times without a job (rank {rank} {error.kind}: {error.text})"
        lane.group, lane.ranks, lane.jobs = None, {}, []
        lane.equipped, lane.probes, lane.nodes = {}, {}, []

    def fail_without(self) -> None:
        """Where every lane is lost, a queued job would wait for ever: it ends with the reason instead."""
        if self.not_lost():
            return
        reasons = "; ".join(f"{name} {lane.lost}" for name, lane in self._lanes.items())
        for entry in self._ledger.unfinished():
            self._ledger.finish(entry, Outcome(Kind.CRASHED, f"no lane is left: {reasons}", error="no lane is left"))
