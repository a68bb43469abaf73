"""The ranks that train one model together, and the few things they say to each other."""

import dataclasses
import datetime
import os

import torch
import torch.distributed as distributed


@dataclasses.dataclass(frozen=True)
class Gang:
    """This process's place among ``world_size`` ranks. With one rank nothing is ever sent."""

    rank: int
    world_size: int
    device: torch.device

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over ranks, in place; the same bits on every rank. Returns the tensor."""
        if self.world_size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rank 0's values, in place on every rank. Returns the tensor."""
        if self.world_size > 1:
            distributed.broadcast(tensor, src=0)
        return tensor

    def broadcast_floats(self, values: list[float]) -> list[float]:
        """Rank 0's float64 values on every rank, after all queued device work is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.world_size == 1:
            return values
        return self.broadcast(torch.tensor(values, dtype=torch.float64, device=self.device)).tolist()

    def broadcast_bytes(self, content: bytes) -> bytes:
        """Rank 0's bytes on every rank, so that a rank on another node needs no shared disk."""
        if self.world_size == 1:
            return content
        (length,) = self.broadcast_floats([float(len(content))])
        buffer = torch.empty(int(length), dtype=torch.uint8, device=self.device)
        if self.rank == 0:
            buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        return bytes(self.broadcast(buffer).cpu().numpy())


def choose_device(device: str, local_rank: int) -> torch.device:
    """Resolve "auto", "cpu" or "cuda" for this process. Raises ``RuntimeError`` if CUDA is asked for and absent."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("runtime.device is cuda, but torch sees no GPU here; use cpu or auto")
    if device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    chosen = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(chosen)
    return chosen


def join_gang(device: str = "auto", timeout_s: float = 600.0) -> Gang:
    """Join the process group that exists, or the one torchrun's environment describes, or be a gang of one."""
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if not distributed.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        distributed.init_process_group(
            backend="nccl" if chosen.type == "cuda" else "gloo", timeout=datetime.timedelta(seconds=timeout_s)
        )
    if distributed.is_initialized():
        return Gang(distributed.get_rank(), distributed.get_world_size(), chosen)
    return Gang(0, 1, chosen)


def leave_gang() -> None:
    """Destroy the process group, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
