"""What one node says of itself when it is examined: versions, GPUs, ports, room on its disks."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil  # type: ignore[import-untyped]

import golfray
from golfray.cluster.gpus import Gpu, GpuProblem, list_gpus
from golfray.cluster.listeners import Listener, open_listeners
from golfray.sweep.disk_room import free_bytes

# What decides whether two nodes compute and understand the same.
PACKAGES = ("torch", "ray", "numpy", "sentencepiece", "mlflow", "optuna", "brotli", "zstandard")
_SHARED_MEMORY = Path("/dev/shm")
_TORCH_SECONDS = 120.0
_COUNT_GPUS = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """One node. Bytes are what this user may still use.

    ``versions``: of Python, golfray and :data:`PACKAGES`, None where it is not installed. ``source``: digest of
    golfray's own code. ``cuda``: the version that torch was built for, None for a CPU build; ``nccl``: that of torch's
    NCCL. ``torch_gpus``: how many GPUs torch can use, looked at only where there are some. ``gpu_problem``: why the
    driver does not answer. ``compiler``: the C++ compiler that compiles on the CPU.
    """

    host: str
    system: str
    versions: dict[str, str | None]
    source: str
    cpus: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_problem: str | None
    torch_gpus: int
    cuda: str | None
    nccl: str | None
    compiler: str | None
    shared_memory_bytes: int | None
    temporary_folder: str
    temporary_bytes: int
    listeners: list[Listener]


def examine_node() -> NodeReport:
    """Look at the machine on which this runs; takes as long as importing torch, and that twice where there are GPUs."""
    gpus: tuple[Gpu, ...] = ()
    problem = None
    try:
        gpus = list_gpus()
    except GpuProblem as error:
        problem = str(error)
    cuda, nccl = _torch_build()
    temporary = tempfile.gettempdir()
    return NodeReport(
        host=socket.gethostname(),
        system=platform.platform(terse=True),
        versions={"python": platform.python_version(), "golfray": golfray.__version__, **_versions()},
        source=source_digest(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().available,
        gpus=gpus,
        gpu_problem=problem,
        torch_gpus=_count_torch_gpus() if gpus and cuda is not None else 0,
        cuda=cuda,
        nccl=nccl,
        compiler=os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"),
        shared_memory_bytes=free_bytes(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
        temporary_folder=temporary,
        temporary_bytes=free_bytes(Path(temporary)),
        listeners=open_listeners(),
    )


@functools.cache
def source_digest() -> str:
    """sha256 over the names and contents of golfray's modules: the same version may be another commit."""
    package = Path(golfray.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def _torch_build() -> tuple[str | None, str | None]:
    """The CUDA and the NCCL that torch was built with; None where it was built without."""
    import torch

    if torch.version.cuda is None:
        return None, None
    has_nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return torch.version.cuda, ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None


def _count_torch_gpus() -> int:
    """Asked of a process of its own, which lets go of the GPUs again.

    Ray hides them from a task that reserved none, by an empty variable; one that names some is the user's own choice.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    environment = {name: value for name, value in os.environ.items() if not (hidden and name == "CUDA_VISIBLE_DEVICES")}
    command = [sys.executable, "-c", _COUNT_GPUS]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TORCH_SECONDS)
        return int(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return 0  # whatever it died of, torch cannot use them
