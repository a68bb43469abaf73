"""The GPUs of this machine as their driver sees them, whatever a process may use of them.

Ray hides GPUs from a task that reserved none, and torch holds hundreds of megabytes of each that it looks at; the
driver's own `nvidia-smi` is neither hidden from nor held.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess

_PROGRAM = "nvidia-smi"
_QUERY = (
    "index",
    "name",
    "driver_version",
    "memory.total",
    "memory.used",
    "clocks.current.sm",
    "clocks.max.sm",
    "temperature.gpu",
)
_LIMIT_SECONDS = 30.0
# What nvidia-smi says of a value that this GPU or this container does not have.
_UNKNOWN = ("[N/A]", "[Not Supported]", "[Unknown Error]", "N/A")


class GpuProblem(RuntimeError):
    """There is a driver, and it does not answer; the message is what it said."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU. Memory in MiB, clocks of the multiprocessors in MHz, temperature in degrees Celsius; None: not told."""

    index: int
    name: str
    driver: str
    memory_mib: int | None
    used_mib: int | None
    sm_mhz: int | None
    max_sm_mhz: int | None
    celsius: int | None


def list_gpus() -> tuple[Gpu, ...]:
    """All GPUs of this machine; none where there is no NVIDIA driver. Raises :class:`GpuProblem`."""
    program = shutil.which(_PROGRAM)
    if program is None:
        return ()
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise GpuProblem(f"{_PROGRAM} did not answer within {_LIMIT_SECONDS:g} s") from None
    except OSError as error:
        raise GpuProblem(f"{program}: {error.strerror}") from error
    said = " ".join((ended.stdout + ended.stderr).split())
    if ended.returncode != 0:
        raise GpuProblem(f"{_PROGRAM} ended with code {ended.returncode}: {said[:300]}")
    return tuple(_read(line) for line in ended.stdout.splitlines() if line.strip())


def _read(line: str) -> Gpu:
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_QUERY):
        raise GpuProblem(f"{_PROGRAM} answered {line!r}, which is not the {len(_QUERY)} values that it was asked for")
    index, name, driver, *numbers = fields
    try:
        return Gpu(int(index), name, driver, *(None if field in _UNKNOWN else round(float(field)) for field in numbers))
    except ValueError as error:
        raise GpuProblem(f"{_PROGRAM} answered {line!r}: {error}") from error
