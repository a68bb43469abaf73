"""What one rank of a lane measured, and what the ranks of a node come to together; without torch, for the broker."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

from golfray.sweep.node_probe import NodeProbe

Number = TypeVar("Number", int, float)


@dataclasses.dataclass(frozen=True)
class RankProbe:
    """One rank's measurements, and what it says of its node; units as in :class:`NodeProbe`.

    ``mhz``, ``max_mhz``, ``driver`` and ``read_mb_s`` are the node's, told by its first rank and None elsewhere.
    """

    rank: int
    node: str
    host: str
    address: str
    device: str
    matmul_tflops: float
    reduce_gb_s: float | None
    read_mb_s: float | None
    mhz: int | None
    max_mhz: int | None
    driver: str | None
    python: str
    torch: str
    cuda: str | None
    nccl: str | None
    seconds: float


def of_nodes(ranks: Sequence[RankProbe]) -> list[NodeProbe]:
    """What the ranks of a lane found, a node each, in the order of their first ranks: what is slowest counts."""
    nodes: dict[str, list[RankProbe]] = {}
    for probe in sorted(ranks, key=lambda probe: probe.rank):
        nodes.setdefault(probe.node, []).append(probe)
    return [
        NodeProbe(
            node=node,
            host=own[0].host,
            address=own[0].address,
            ranks=len(own),
            lane_ranks=len(ranks),
            device=own[0].device,
            matmul_tflops=min(probe.matmul_tflops for probe in own),
            reduce_gb_s=least(probe.reduce_gb_s for probe in own),
            read_mb_s=least(probe.read_mb_s for probe in own),
            mhz=least(probe.mhz for probe in own),
            max_mhz=least(probe.max_mhz for probe in own),
            python=own[0].python,
            torch=own[0].torch,
            cuda=own[0].cuda,
            nccl=own[0].nccl,
            driver=next((probe.driver for probe in own if probe.driver is not None), None),
            seconds=max(probe.seconds for probe in own),
        )
        for node, own in nodes.items()
    ]


def least(values: Iterable[Number | None]) -> Number | None:
    """The smallest of the values that are there; None where none is."""
    return min((value for value in values if value is not None), default=None)
