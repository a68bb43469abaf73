"""When the ranks of a lane are started anew between two trials: after a number of them, or because memory leaks.

A process that lives through hundreds of trials gathers what their libraries never give back. What a trial held on the
device must be free before the next one begins, or that one runs out of memory for no fault of its own.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]

from golfray.config.sizes import size_text

_MIB = 1024**2

# The reason where every trial has a worker group of its own: nothing that anybody need be told.
ISOLATED = "one trial a worker group"


@dataclasses.dataclass(frozen=True)
class Recycling:
    """Limits for one rank, in trials and bytes.

    ``trials``: ranks are started anew after so many; 1 gives every trial a worker group of its own. ``device_floor``:
    what may still be allocated on its GPU between two trials (cuBLAS keeps workspaces). ``host_growth``: by how much
    its resident memory may have grown since the end of its first trial.
    """

    trials: int = 100
    device_floor: int = 256 * _MIB
    host_growth: int = 1024 * _MIB

    def __post_init__(self) -> None:
        """Raises ``ValueError`` on a number of trials that makes no sense."""
        if self.trials < 1:
            raise ValueError(f"recycling.trials must be at least 1, got {self.trials}")


class RankMemory:
    """What one rank holds between its trials, compared with what it may.

    ``device`` and ``host`` say how many bytes it has allocated on its GPU, and resident on its machine.
    """

    def __init__(self, limits: Recycling, device: Callable[[], int], host: Callable[[], int]) -> None:
        self._limits = limits
        self._device = device
        self._host = host
        self._trials = 0
        self._host_first = 0

    def why_recycle(self) -> str | None:
        """Call it after every trial, once its memory was given back; why this rank should run no more of them."""
        limits, self._trials = self._limits, self._trials + 1
        held, resident = self._device(), self._host()
        if self._trials == 1:
            self._host_first = resident
        grown = resident - self._host_first
        if held > limits.device_floor:
            return f"{size_text(held)} on the GPU were not given back, more than {size_text(limits.device_floor)}"
        if grown > limits.host_growth:
            return f"its memory grew by {size_text(grown)} in {self._trials} trials"
        if self._trials >= limits.trials:
            return ISOLATED if limits.trials == 1 else f"it ran {self._trials} trials"
        return None


def device_bytes() -> int:
    """Bytes that torch has allocated on this process's GPU; 0 where it uses none."""
    torch = sys.modules.get("torch")
    return 0 if torch is None or not torch.cuda.is_initialized() else int(torch.cuda.memory_allocated())


def resident_bytes() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)
