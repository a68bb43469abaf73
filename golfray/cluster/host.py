"""The process in which Tune and the trainers of all lanes run, an actor beside the broker.

Their libraries keep threads in calls to Ray. In the driver such a thread would end the whole process, without a word
and with exit code 1, if it came back from a call after Ray was shut down; here it ends with the cluster. The driver
calls Ray from one thread only, and neither imports torch nor hears what Tune prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golfray.cluster.equipment import Equipment
from golfray.cluster.preflight import LanePlan

# join, and the question that waits for Tune's end.
CALLS_AT_ONCE = 4


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
    ) -> None:
        # These import Train and with it torch: here, and not where this module is imported.
        from golfray.cluster.lane import Lane
        from golfray.cluster.tune_bridge import TuneBridge

        self._lanes = [Lane(name, plan, broker, scratch, run, local, equipment) for name in lanes]
        for lane in self._lanes:
            lane.start()
        self._tune = TuneBridge(broker, plan.slots, scratch)
        self._tune.start()

    def tune_failure(self) -> str | None:
        """Wait for Tune's end: why it ended where it did so by an error, None where the study was over."""
        self._tune.join(None)
        return self._tune.failure

    def join(self, timeout: float) -> None:
        """Wait for the ends of lanes and Tune, ``timeout`` seconds for each at most."""
        for lane in self._lanes:
            lane.join(timeout)
        self._tune.join(timeout)
