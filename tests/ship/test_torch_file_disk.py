"""A checkpoint on a disk that cannot be read is the disk's fault, not a damaged file."""

import errno
import io

import pytest
import torch

from golfray.ship.torch_file import TorchFile


class FailingDisk(io.BytesIO):
    """Reads as it should until it ``fails``."""

    fails = False
    number = errno.EIO

    def read(self, count: int | None = -1) -> bytes:
        if self.fails:
            raise OSError(self.number, "Input/output error")
        return super().read(count)


@pytest.fixture(params=[errno.EIO, errno.EINVAL, errno.ESTALE], ids=errno.errorcode.get)
def disk(request: pytest.FixtureRequest) -> FailingDisk:
    """Whatever number it fails with: damage has none of them."""
    file = FailingDisk()
    file.number = request.param
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


def test_damage_is_damage_whatever_the_caller_is_dealing_with() -> None:
    try:
        raise FileNotFoundError(errno.ENOENT, "another file")
    except FileNotFoundError:
        with pytest.raises(ValueError, match="holds no saved container"):
            TorchFile(io.BytesIO(b"PK damaged"))
