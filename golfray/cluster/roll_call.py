"""A lane forms, the broker's side: it is taken, or refused for what its nodes lack or cannot do.

A lane that is refused is not started again: where it lies Ray decides, and Ray would decide the same.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from golfray.cluster.lane_book import LaneBook, LaneRecord
from golfray.cluster.rank_probe import RankProbe, of_nodes
from golfray.cluster.ranks import Seat
from golfray.sweep.node_probe import NodeProbe, refusal

_MOST_FAULTS = 3


class RollCall:
    """Which lanes of ``lanes`` may run jobs. Methods are called from the broker's event loop.

    ``workers``: ranks of a lane. ``refuse_slower``: as in :func:`golfray.sweep.node_probe.refusal`. ``until`` waits for
    a condition, ``notify`` tells whoever waits that something has changed.
    """

    def __init__(
        self,
        lanes: LaneBook,
        workers: int,
        refuse_slower: float | None,
        until: Callable[[Callable[[], bool], float | None], Coroutine[Any, Any, bool]],
        notify: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._lanes = lanes
        self._workers = workers
        self._refuse_slower = refuse_slower
        self._until = until
        self._notify = notify
        # The last that each node measured, in whatever lane.
        self._probes: dict[str, NodeProbe] = {}

    async def equip(self, seat: Seat, faults: list[str]) -> bool:
        """A rank says what its node lacks; answers when all have. False: the lane is refused."""
        lane = self._lanes[seat.lane]
        if lane.group == seat.group:
            lane.equipped[seat.rank] = faults
            if len(lane.equipped) == self._workers:
                lacks = [fault for rank in sorted(lane.equipped) for fault in lane.equipped[rank]]
                if lacks:
                    self._refuse(lane, _words(lane, lacks))
            await self._notify()
        await self._until(lambda: lane.group != seat.group or len(lane.equipped) == self._workers, None)
        return lane.group == seat.group and lane.lost is None

    async def probed(self, seat: Seat, probe: RankProbe) -> bool:
        """A rank says what it measured; answers when all have. False: the lane is refused."""
        lane = self._lanes[seat.lane]
        if lane.group == seat.group:
            lane.probes[seat.rank] = probe
            if len(lane.probes) == self._workers:
                lane.nodes = of_nodes(list(lane.probes.values()))
                self._probes.update({node.node: node for node in lane.nodes})
                self._judge()
            await self._notify()
        await self._until(lambda: lane.group != seat.group or bool(lane.nodes), None)
        return lane.group == seat.group and lane.lost is None

    def _judge(self) -> None:
        """Every lane that is up against all that is known by now: a slow node may have been the first to come."""
        for lane in self._lanes.up():
            for node in lane.nodes:
                reason = refusal(node, self._probes.values(), self._refuse_slower)
                # The last lane is better than none.
                if reason is not None and lane.lost is None and self._lanes.usable() > 1:
                    self._refuse(lane, reason)

    def _refuse(self, lane: LaneRecord, reason: str) -> None:
        self._lanes.lose(lane, f"was refused: {reason}")
        self._lanes.fail_without()


def _words(lane: LaneRecord, lacks: list[str]) -> str:
    nodes = ", ".join(sorted({process.node[:8] for process in lane.ranks.values()}))
    more = f"; and {len(lacks) - _MOST_FAULTS} more" if len(lacks) > _MOST_FAULTS else ""
    return f"{'; '.join(lacks[:_MOST_FAULTS])}{more} (Ray's node {nodes})"
