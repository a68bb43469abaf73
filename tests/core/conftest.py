"""What the core's tests share: one thread, and a gang of one."""

from collections.abc import Iterator

import pytest
import torch

from golfray.core.gang import Gang


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small shapes are slower on many threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def alone() -> Gang:
    """A gang of one on the CPU."""
    return Gang(rank=0, world_size=1, device=torch.device("cpu"))
