"""The file that is shipped: a saved container under zlib, written atomically and read back."""

import hashlib
import io
import os
import pathlib
import zlib

import torch


def pack_artifact(container: dict, zlib_level: int) -> bytes:
    """``torch.save`` of the container, compressed; the same container gives the same bytes."""
    buffer = io.BytesIO()
    torch.save(container, buffer)
    return zlib.compress(buffer.getvalue(), zlib_level)


def unpack_artifact(content: bytes) -> dict:
    """The container inside an artifact of our own; the ship floor checks those from elsewhere first."""
    return torch.load(io.BytesIO(zlib.decompress(content)), map_location="cpu", weights_only=True)


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write a file so that its name never stands for half its content, even after a crash.

    Raises ``OSError`` that names the file, and leaves nothing of it then.
    """
    partial = path.with_name(path.name + ".part")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise type(error)(error.errno, error.strerror, str(path)) from error
    os.replace(partial, path)


def sha256_hex(content: bytes) -> str:
    """SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
