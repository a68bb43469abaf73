"""What a lane measures when it forms: its arithmetic, its collectives, its disk, its clocks; a second on CPUs.

Every rank computes at the same time, as it will in a trial. Nothing here decides anything:
:mod:`golfray.sweep.node_probe` compares nodes.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import torch
import torch.distributed as distributed

from golfray.cluster.gpus import Gpu, GpuProblem, list_gpus
from golfray.cluster.rank_probe import RankProbe, least
from golfray.core.gang import Gang

# All of it, on whatever machine; a collective that is not over by then never will be.
LIMIT_SECONDS = 30.0


class ProbeFailed(RuntimeError):
    """A measurement did not come to its end; the message says which and why."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured: matrices of ``size`` squared, ``reduce_bytes`` in an all-reduce, ``read_bytes`` of a shard.

    ``multiply_s``: seconds of products, after a first one that wakes the device up; ``read_s``: after which reading
    stops, wherever it is.
    """

    size: int
    dtype: torch.dtype
    multiply_s: float
    reduce_bytes: int
    read_bytes: int
    read_s: float


# bfloat16 on GPUs, as trials have it. The all-reduce has the bytes of a small model's gradients.
ON_CPU = Effort(512, torch.float32, 0.25, 4_000_000, 32_000_000, 0.2)
ON_CUDA = Effort(8192, torch.bfloat16, 2.0, 128_000_000, 1_000_000_000, 5.0)
_REDUCTIONS = 4
_PIECE_BYTES = 4 * 1024 * 1024


def probe_rank(gang: Gang, *, node: str, address: str, leads_node: bool, shard: Path | None) -> RankProbe:
    """Measure; every rank of the gang calls it. ``leads_node``: whether this rank reads ``shard`` for its node.

    Raises :class:`ProbeFailed` where a collective is not over within :data:`LIMIT_SECONDS`.
    """
    begun = time.perf_counter()
    on_cuda = gang.device.type == "cuda"
    effort = ON_CUDA if on_cuda else ON_CPU
    flops = _matmul_flops(gang.device, effort)
    clocks = _clocks(on_cuda) if leads_node else (None, None, None)
    reduced = _reduce_bytes_per_s(gang, effort.reduce_bytes, begun + LIMIT_SECONDS) if gang.world_size > 1 else None
    read = _read_bytes_per_s(shard, effort) if leads_node and shard is not None else None
    return RankProbe(
        rank=gang.rank,
        node=node,
        host=socket.gethostname(),
        address=address,
        device=torch.cuda.get_device_name(gang.device) if on_cuda else "cpu",
        matmul_tflops=flops / 1e12,
        reduce_gb_s=None if reduced is None else reduced / 1e9,
        read_mb_s=None if read is None else read / 1e6,
        mhz=clocks[0],
        max_mhz=clocks[1],
        driver=clocks[2],
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if on_cuda else None,
        seconds=time.perf_counter() - begun,
    )


def _matmul_flops(device: torch.device, effort: Effort) -> float:
    """Operations per second by the median of products; a product of n x n matrices is 2 n^3 of them."""
    generator = torch.Generator(device="cpu").manual_seed(0)
    left = torch.randn(effort.size, effort.size, generator=generator).to(device, effort.dtype)
    product = torch.empty_like(left)

    def multiply() -> float:
        _finish(device)
        begun = time.perf_counter()
        torch.matmul(left, left, out=product)
        _finish(device)
        return time.perf_counter() - begun

    multiply()
    taken, until = [multiply()], time.perf_counter() + effort.multiply_s
    while time.perf_counter() < until:
        taken.append(multiply())
    return 2 * effort.size**3 / statistics.median(taken)


def _reduce_bytes_per_s(gang: Gang, size: int, until: float) -> float:
    """Bytes that each rank sends per second: an all-reduce of n ranks cannot do with less than 2 (n - 1) / n of all."""
    tensor = torch.zeros(size // 4, device=gang.device)
    taken = []
    for _ in range(_REDUCTIONS):
        _finish(gang.device)
        begun = time.perf_counter()
        _wait(distributed.all_reduce(tensor, async_op=True), until)
        _finish(gang.device)
        taken.append(time.perf_counter() - begun)
    # The first one makes the connections.
    return 2 * (gang.world_size - 1) / gang.world_size * size / statistics.median(taken[1:])


def _wait(work: distributed.Work, until: float) -> None:
    while not work.is_completed():
        if time.perf_counter() > until:
            raise ProbeFailed(
                f"an all-reduce over the lane's ranks was not over {LIMIT_SECONDS:g} s after the probe began: look at "
                "the network between its nodes"
            )
        # Anything longer would be measured.
        time.sleep(0.0001)
    work.wait()


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _read_bytes_per_s(path: Path, effort: Effort) -> float:
    """From the beginning of a file, which the kernel is asked to forget before; where it does not, from memory."""
    with path.open("rb", buffering=0) as file:
        size = min(effort.read_bytes, os.fstat(file.fileno()).st_size)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_DONTNEED)
        piece, left = memoryview(bytearray(_PIECE_BYTES)), size
        begun = time.perf_counter()
        while left > 0 and (read := file.readinto(piece[: min(left, len(piece))])):
            left -= read
            if time.perf_counter() > begun + effort.read_s:
                break
        return (size - left) / max(time.perf_counter() - begun, 1e-9)


def _clocks(on_cuda: bool) -> tuple[int | None, int | None, str | None]:
    """Present and highest clock in MHz and the driver: of the slowest GPU just after work, or of the CPUs."""
    if not on_cuda:
        frequency = psutil.cpu_freq()
        if frequency is None:
            return None, None, None
        return round(frequency.current) or None, round(frequency.max) or None, None
    try:
        gpus = list_gpus()
    except GpuProblem:
        gpus = ()  # CUDA works without the program; the doctor says that it does not
    return _slowest(gpus, lambda gpu: gpu.sm_mhz), _slowest(gpus, lambda gpu: gpu.max_sm_mhz), _driver(gpus)


def _slowest(gpus: Sequence[Gpu], clock: Callable[[Gpu], int | None]) -> int | None:
    return least(clock(gpu) for gpu in gpus)


def _driver(gpus: Sequence[Gpu]) -> str | None:
    return gpus[0].driver if gpus else None
