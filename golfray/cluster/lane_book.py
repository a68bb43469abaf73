"""What the broker knows of every lane: who is up in it, which jobs that incarnation was given, whether it is lost."""

from __future__ import annotations

import dataclasses
import time

from golfray.cluster.endings import lane_failed_outcome
from golfray.cluster.ledger import Entry, Ledger, Stage
from golfray.cluster.rank_probe import RankProbe
from golfray.cluster.ranks import RankError, RankProcess
from golfray.cluster.recycling import ISOLATED
from golfray.config.sizes import count_text
from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Kind, Outcome

_LOST_AFTER_IDLE_FAILURES = 3


@dataclasses.dataclass
class LaneRecord:
    """One lane. ``group``, ``ranks`` and ``jobs`` are those of the incarnation that is up, if one is.

    So are ``equipped`` (what the node of each rank lacks), ``probes`` of its ranks, and ``nodes``, which follows from
    them once all are there. ``worked``: whether its present trainer has ever run a job; one that never has is not
    started again, unless it was ``starved``: there was no room for it. ``recycling``: why this incarnation runs no more
    jobs. ``lost``: why the lane is not started any more; ``homeless``: that is because no node has room for it.
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
    starved: bool = False
    recycling: str | None = None
    lost: str | None = None
    homeless: bool = False

    @property
    def leaves(self) -> bool:
        """Whether the ranks that are up go home rather than run another job."""
        return self.recycling is not None or self.lost is not None


class LaneBook:
    """Lanes by name; what their ends mean for the jobs of ``ledger``."""

    def __init__(self, names: list[str], ledger: Ledger) -> None:
        self._lanes = {name: LaneRecord() for name in names}
        self._ledger = ledger
        # How many lanes the cluster holds; None where it never changes.
        self._room: int | None = None
        self._news: list[str] = []

    def __getitem__(self, name: str) -> LaneRecord:
        return self._lanes[name]

    def of(self, entry: Entry) -> LaneRecord | None:
        """The lane that has the job, while it is the same incarnation that was given it."""
        lane = self._lanes[entry.lane] if entry.lane is not None else None
        return lane if lane is not None and lane.group == entry.group else None

    def usable(self) -> int:
        """How many lanes run jobs, or will as soon as their ranks are up."""
        lanes = sum(not lane.lost for lane in self._lanes.values())
        return lanes if self._room is None else min(lanes, self._room)

    def resize(self, room: int) -> list[str]:
        """The cluster holds ``room`` lanes from now on; returns the names of new lanes, which are to be started.

        A lane that has too little room waits for it in its trainer, and is there again if it comes in time. One that
        was lost for another reason keeps its place: where it was, the next one would fail as well.
        """
        before, self._room = self._room, room
        if before is not None and before != room:
            self._news.append(f"the cluster holds {count_text(room, 'lane')} now, {before} before")
        if self._placed() > room:
            for lane in self._lanes.values():
                lane.starved = lane.starved or (lane.group is None and lane.lost is None)
        first = len(self._lanes)
        names = [f"lane-{number}" for number in range(first, first + max(room - self._placed(), 0))]
        self._lanes.update({name: LaneRecord() for name in names})
        self._news += [f"{name} was added" for name in names]
        return names

    def goes_on(self, name: str, reason: str) -> bool:
        """Whether a lane whose trainer has ended for ``reason`` gets another one; otherwise it is lost."""
        lane = self._lanes[name]
        has_room = self._room is None or self._placed() <= self._room
        again = lane.lost is None and (lane.worked or lane.starved) and has_room
        lane.worked = lane.starved = False
        if not again and lane.lost is None:
            lane.homeless = not has_room
            self.lose(lane, "no node has room for it" if lane.homeless else reason)
        return again

    def recycle(self, name: str, reason: str) -> None:
        """The ranks that are up there run no more jobs and are started anew."""
        lane = self._lanes[name]
        if lane.recycling is None:
            lane.recycling = reason
            if reason != ISOLATED:
                self._news.append(f"{name} starts its ranks anew: {reason}")

    def waits_for_room(self) -> bool:
        """Whether a lane is there, or was, that only lacks a node."""
        return any(not lane.lost or lane.homeless for lane in self._lanes.values())

    def take_news(self) -> list[str]:
        """What happened to lanes since the last call, for a person."""
        news, self._news = self._news, []
        return news

    def _placed(self) -> int:
        return sum(not lane.homeless for lane in self._lanes.values())

    def up(self) -> list[LaneRecord]:
        """Lanes whose ranks are there, be they refused or not."""
        return [lane for lane in self._lanes.values() if lane.group is not None]

    def lose(self, lane: LaneRecord, reason: str) -> None:
        """No more jobs for a lane, and its ranks are not started again."""
        lane.lost = reason
        self._news.append(f"{self._name_of(lane)} is lost: {reason}")

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
            if lane.lost is None and lane.idle_failures >= _LOST_AFTER_IDLE_FAILURES:
                why = f"failed {lane.idle_failures} times without a job (rank {rank} {error.kind}: {error.text})"
                self.lose(lane, why)
        lane.group, lane.ranks, lane.jobs, lane.recycling = None, {}, [], None
        lane.equipped, lane.probes, lane.nodes = {}, {}, []

    def fail_without(self) -> None:
        """Where every lane is lost, a queued job would wait for ever: it ends with the reason instead.

        Where some only lack a node, one may come.
        """
        if self.waits_for_room():
            return
        reasons = "; ".join(f"{name} {lane.lost}" for name, lane in self._lanes.items())
        for entry in self._ledger.unfinished():
            self._ledger.finish(entry, Outcome(Kind.CRASHED, f"no lane is left: {reasons}", error="no lane is left"))

    def _name_of(self, lane: LaneRecord) -> str:
        return next(name for name, other in self._lanes.items() if other is lane)
