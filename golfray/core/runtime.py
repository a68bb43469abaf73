"""Which arithmetic a trial runs in here: device, dtype, compiled or not; chosen once and said aloud."""

import dataclasses
import os
import shutil

import torch

from golfray.core.gang import Gang
from golfray.core.settings import RunSettings


@dataclasses.dataclass(frozen=True)
class Runtime:
    """The resolved choices and one line that says what they are and why."""

    dtype: torch.dtype
    compiled: bool
    description: str


def choose_runtime(settings: RunSettings, gang: Gang) -> Runtime:
    """Resolve ``auto``: bfloat16 and compiled on CUDA; float32 on the CPU, compiled where a C++ compiler is found.

    Raises ``RuntimeError`` where compilation is asked for on a CPU that has no compiler.
    """
    wanted = settings.runtime
    on_cuda = gang.device.type == "cuda"
    dtype_name = wanted.dtype if wanted.dtype != "auto" else ("bfloat16" if on_cuda else "float32")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if wanted.compile == "on" and not on_cuda and not compiler:
        raise RuntimeError("runtime.compile is on, but no C++ compiler (g++) was found; install one or set it to auto")
    compiled = wanted.compile == "on" or (wanted.compile == "auto" and (on_cuda or compiler is not None))
    device_name = torch.cuda.get_device_name(gang.device) if on_cuda else "cpu"
    how = "compiled" if compiled else "eager"
    if not compiled:
        why = "asked for" if wanted.compile == "off" else "no C++ compiler found"
    else:
        why = "asked for" if wanted.compile == "on" else ("CUDA" if on_cuda else "C++ compiler found")
    text = f"{device_name}, {dtype_name}, {how} ({why}), {torch.get_num_threads()} thread(s) a rank"
    return Runtime(getattr(torch, dtype_name), compiled, text)


def prepare_device(gang: Gang, dtype: torch.dtype) -> None:
    """The baseline's switches on CUDA: TF32 allowed; flash attention alone where GPU (sm80 on) and dtype have it."""
    if gang.device.type != "cuda":
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    flash = dtype == torch.bfloat16 and torch.cuda.get_device_capability(gang.device) >= (8, 0)
    torch.backends.cuda.enable_flash_sdp(flash)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(not flash)
    torch.backends.cuda.enable_math_sdp(not flash)


def count_graphs() -> int:
    """How many graphs torch has compiled in this process so far; a rise inside the clock is a recompile."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
