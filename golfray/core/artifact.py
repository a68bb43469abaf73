"""The file that is shipped: a saved container under zlib, written atomically and read back without trust."""

import hashlib
import io
import os
import pathlib
import zipfile
import zlib

import torch

MAX_CONTAINER_BYTES = 1 << 30


def pack_artifact(container: dict, zlib_level: int) -> bytes:
    """``torch.save`` of the container, compressed; the same container gives the same bytes."""
    buffer = io.BytesIO()
    torch.save(container, buffer)
    return zlib.compress(buffer.getvalue(), zlib_level)


def unpack_artifact(content: bytes, max_container_bytes: int = MAX_CONTAINER_BYTES) -> dict:
    """The container inside an artifact, without running anything it says and without trusting its sizes.

    Raises ``ValueError`` where the content is not zlib, holds more than ``max_container_bytes``, is cut or has bytes
    after its end, or is not a plain container of tensors.
    """
    inflater = zlib.decompressobj()
    try:
        saved = inflater.decompress(content, max_container_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"artifact is not zlib data: {error}") from error
    if len(saved) > max_container_bytes:
        raise ValueError(f"artifact inflates to more than {max_container_bytes} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("artifact is cut short" if not inflater.eof else "artifact has bytes after its end")
    try:
        with zipfile.ZipFile(io.BytesIO(saved)) as archive:
            members = archive.infolist()
    except Exception as error:
        raise ValueError(f"artifact holds no saved container: {error}") from error
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("artifact holds compressed members, which torch.save never writes")
    if sum(member.file_size for member in members) > len(saved):
        raise ValueError("artifact's members claim more bytes than it has")
    try:
        container = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError("artifact cannot be loaded as plain tensors; it is refused") from error
    if not isinstance(container, dict):
        raise ValueError(f"artifact holds a {type(container).__name__}, must be a dict")
    return container


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write a file so that its name never stands for half its content, even after a crash."""
    partial = path.with_name(path.name + ".part")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def sha256_hex(content: bytes) -> str:
    """SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
