"""The process in which Tune and the trainers of all lanes run, an actor beside the broker.

Their libraries keep threads in calls to Ray. In the driver such a thread would end the whole process, without a word
and with exit code 1, if it came back from a call after Ray was shut down; here it ends with the cluster. The driver
calls Ray from one thread only, and neither imports torch nor hears what Tune prints.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.cluster.equipment import Equipment
from golfray.cluster.nodes import holding
from golfray.cluster.preflight import LanePlan
from golfray.cluster.recycling import Recycling

# join, and the question that waits for Tune's end.
CALLS_AT_ONCE = 4

# Ray itself hears of a lost node after some ten seconds, and a new one takes as long to start a lane.
_LOOK_SECONDS = 2.0


class Host:
    """Starts a lane for every name, and Tune; methods are called side by side."""

    def __init__(
        self,
        broker: Any,
        plan: LanePlan,
        lanes: list[str],
        scratch: Path,
        run: str | None,
        local: bool,
        equipment: Equipment,
        recycling: Recycling,
    ) -> None:
        # These import Train and with it torch: here, and not where this module is imported.
        from golfray.cluster.lane import Lane
        from golfray.cluster.tune_bridge import TuneBridge

        def start(name: str) -> None:
            self._lanes.append(Lane(name, plan, broker, scratch, run, local, equipment, recycling))
            self._lanes[-1].start()

        self._lanes: list[Lane] = []
        for name in lanes:
            start(name)
        self._tune = TuneBridge(broker, scratch)
        self._tune.start()
        if not local:
            threading.Thread(target=follow_cluster, args=(broker, plan, start), name="cluster", daemon=True).start()

    def tune_failure(self) -> str | None:
        """Wait for Tune's end: why it ended where it did so by an error, None where the study was over."""
        self._tune.join(None)
        return None if self._tune.failure is None else f"Tune ended: {self._tune.failure}"

    def join(self, timeout: float) -> None:
        """Wait for the ends of lanes and Tune, ``timeout`` seconds for each at most."""
        for lane in self._lanes:
            lane.join(timeout)
        self._tune.join(timeout)


def follow_cluster(broker: Any, plan: LanePlan, start: Callable[[str], None]) -> None:
    """Tell the broker again and again how many lanes the cluster holds, and start those that are new, until it ends.

    What others use of the cluster now is taken for theirs as long as this runs.
    """
    import ray
    from ray.exceptions import RayError

    in_all, free = ray.cluster_resources(), plan.free
    theirs = {name: max(in_all.get(name, 0.0) - free.get(name, 0.0), 0.0) for name in plan.resources_per_worker}
    while True:
        now = ray.cluster_resources()
        room = plan.fits({name: now.get(name, 0.0) - taken for name, taken in theirs.items()})
        try:
            names = ray.get(broker.resize.remote(room, holding()))
        except RayError:
            return  # the study is over
        for name in names:
            start(name)
        time.sleep(_LOOK_SECONDS)
