"""What a node measured of itself when a lane formed on it, and whether it is slower than the others.

A trial is trained for seconds, so a node that computes a tenth slower gives a tenth fewer steps and a worse score, of
which nothing else tells. Nodes are compared with each other, never with a data sheet: with the median of the others
that have the same device and as many ranks of a lane.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

# How much slower than the others is worth a word. Products of matrices are steady; what else was measured is shared
# with neighbours and varies.
FLAGGED_AT = {"matmul_tflops": 1.1, "reduce_gb_s": 1.5, "read_mb_s": 3.0}
_WORDS = {"matmul_tflops": "matrix products", "reduce_gb_s": "all-reduce", "read_mb_s": "reading the data"}


@dataclasses.dataclass(frozen=True)
class NodeProbe:
    """One node's share of a lane, as it was measured before the lane's first trial.

    ``node`` is Ray's name of it, ``address`` its IP address. ``ranks``: of the lane, on this node; ``lane_ranks``: in
    all. ``matmul_tflops``: 10^12 floating-point operations per second of square matrix products, of its slowest rank.
    ``reduce_gb_s``: 10^9 bytes per second that each rank sends in an all-reduce over the lane; None with one rank.
    ``read_mb_s``: 10^6 bytes per second from the first training shard, not from memory where the kernel lets go of it;
    None where no data is known. ``mhz`` and ``max_mhz``: clock just after the products and the highest there is, of
    the slowest GPU, or of the CPUs; None: not told. ``cuda``, ``nccl``, ``driver``: None without a GPU.
    ``seconds``: that the probe took.
    """

    node: str
    host: str
    address: str
    ranks: int
    lane_ranks: int
    device: str
    matmul_tflops: float
    reduce_gb_s: float | None
    read_mb_s: float | None
    mhz: int | None
    max_mhz: int | None
    python: str
    torch: str
    cuda: str | None
    nccl: str | None
    driver: str | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, as the event log has it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NodeProbe:
        """Inverse of :meth:`to_dict`; raises ``TypeError`` where a field is missing. What it does not know is left."""
        return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values})

    @property
    def kind(self) -> tuple[str, int, int]:
        """What must be equal for two probes to be compared."""
        return self.device, self.ranks, self.lane_ranks


@dataclasses.dataclass(frozen=True)
class Slowness:
    """``times`` that a node takes of what the median of ``others`` nodes takes, for one of :data:`FLAGGED_AT`."""

    measure: str
    times: float
    others: int

    def words(self) -> str:
        """For a person."""
        whose = "that of the one other node" if self.others == 1 else f"the median of {self.others} other nodes"
        return f"{_WORDS[self.measure]}: {self.times:.2f} times the time, against {whose}"


def slowness_of(probe: NodeProbe, probes: Iterable[NodeProbe]) -> list[Slowness]:
    """How much slower a node is than the others among ``probes``, whose last probe each counts; also where it is not.

    Empty where no other node is of its kind.
    """
    last = {other.node: other for other in probes if other.kind == probe.kind and other.node != probe.node}
    found = []
    for measure in FLAGGED_AT:
        own = getattr(probe, measure)
        values = [value for other in last.values() if (value := getattr(other, measure)) is not None]
        if own is not None and values:
            found.append(Slowness(measure, statistics.median(values) / own, len(values)))
    return found


def flagged(probe: NodeProbe, probes: Iterable[NodeProbe]) -> list[Slowness]:
    """What of it is so slow that it is worth a word."""
    return [slow for slow in slowness_of(probe, probes) if slow.times > FLAGGED_AT[slow.measure]]


def refusal(probe: NodeProbe, probes: Iterable[NodeProbe], refuse_slower: float | None) -> str | None:
    """Why a node must not train: it computes so many times slower than the others; None where it may.

    ``refuse_slower``: how many times the time of the others its matrix products may take; None: whatever they take.
    """
    if refuse_slower is None:
        return None
    for slow in slowness_of(probe, probes):
        if slow.measure == "matmul_tflops" and slow.times > refuse_slower:
            limit = f"nodes.refuse_slower {refuse_slower:g}"
            return f"node {probe.address} ({probe.host}) is too slow: {slow.words()} ({limit})"
    return None
