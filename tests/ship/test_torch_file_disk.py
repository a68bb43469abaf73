"""A checkpoint on a disk that cannot be read is the disk's fault, not a damaged file."""

import errno
import io

import pytest
import torch

from golfray.ship.torch_file import TorchFile


class FailingDisk(io.BytesIO):
    """Reads as it should until it ``fails``."""

    fails = False

    def read(self, count: int | None = -1) -> bytes:
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(count)


@pytest.fixture
def disk() -> FailingDisk:
    file = FailingDisk()
    torch.save({"weight": torch.arange(6.0)}, file)
    return file


def test_from_the_start(disk: FailingDisk) -> None:
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        TorchFile(disk)


def test_in_the_middle(disk: FailingDisk) -> None:
    opened = TorchFile(disk)
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        opened.load(opened.content)
