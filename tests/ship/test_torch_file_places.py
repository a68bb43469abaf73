"""Places that the directory of a torch file names: 64 bits wide, in a file on disk and in one in memory alike."""

import io
import pathlib
import struct

import pytest
import torch

from golfray.ship.torch_file import TorchFile

FAR = (2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def rebuilt(places: dict[int, int], *, size: int | None = None, start: int | None = None) -> bytes:
    """A saved dict behind a directory of 64 bits, in which members, by number, and the directory lie elsewhere."""
    written = io.BytesIO()
    torch.save({"a": torch.arange(6.0)}, written)
    content = written.getvalue()
    entries, at = [], content.find(b"PK\1\2")
    body = content[:at]
    while content[at : at + 4] == b"PK\1\2":
        name, extra, comment = struct.unpack_from("<HHH", content, at + 28)
        header, title = bytearray(content[at : at + 46]), content[at + 46 : at + 46 + name]
        more = b""
        if len(entries) in places:
            struct.pack_into("<L", header, 42, 2**32 - 1)
            more = struct.pack("<HHQ", 1, 8, places[len(entries)])
        struct.pack_into("<HHH", header, 28, name, len(more), 0)
        entries.append(bytes(header) + title + more)
        at += 46 + name + extra + comment
    directory = b"".join(entries)
    size, start = len(directory) if size is None else size, len(body) if start is None else start
    count = len(entries)
    end = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, len(body) + len(directory), 1)
    end += struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    return body + directory + end


def loaded(content: bytes, path: pathlib.Path | None) -> dict:
    """What is read of a file, in memory where there is no path."""
    if path is None:
        file = TorchFile(io.BytesIO(content))
        return file.load(file.content)
    path.write_bytes(content)
    with open(path, "rb") as opened:
        file = TorchFile(opened)
        return file.load(file.content)


@pytest.fixture(params=["on disk", "in memory"])
def path(request, tmp_path: pathlib.Path) -> pathlib.Path | None:
    return tmp_path / "saved.pt" if request.param == "on disk" else None


def test_a_directory_that_says_the_truth_is_read(path) -> None:
    assert torch.equal(loaded(rebuilt({}), path)["a"], torch.arange(6.0))


@pytest.mark.parametrize("place", FAR)
def test_members_far_outside_the_file_are_one_error(path, place) -> None:
    refused = 0
    for member in range(8):
        # A member that is not needed may lie anywhere; any other exception fails the test.
        try:
            assert torch.equal(loaded(rebuilt({member: place}), path)["a"], torch.arange(6.0))
        except ValueError as error:
            assert "damaged" in str(error)  # noqa: PT017
            refused += 1
    assert refused >= 2


@pytest.mark.parametrize("far", FAR)
def test_a_directory_far_outside_the_file_is_one_error(path, far) -> None:
    for where in ({"size": far}, {"start": far}, {"size": far, "start": far}):
        with pytest.raises(ValueError, match=r"holds no saved container|is damaged"):
            loaded(rebuilt({}, **where), path)


@pytest.mark.parametrize("length", [0, 1, 21, 22, 41, 42])
def test_files_too_short_for_a_directory_are_one_error(path, length) -> None:
    with pytest.raises(ValueError, match="holds no saved container"):
        loaded(rebuilt({})[-length:] if length else b"", path)
