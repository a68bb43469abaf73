"""What the core's tests share: one thread, and a gang of one."""

from collections.abc import Iterator

import pytest
import torch

from golfray.core.gang import Gang
from tests.threads import one_thread


@pytest.fixture(autouse=True)
def on_one_thread() -> Iterator[None]:
    """Every test here."""
    with one_thread():
        yield


@pytest.fixture
def alone() -> Gang:
    """A gang of one on the CPU."""
    return Gang(rank=0, world_size=1, device=torch.device("cpu"))
