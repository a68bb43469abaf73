"""The flat container: a line of text, then a compressed table and planes of numbers. No pickle; docs/artifact.md.

    golfray-flat 1 CODEC VERSION SHUFFLED LENGTH CRC32 \\n compressed(body)

The body (LENGTH bytes; the CRC32 is over the line before it and the body) is the content or, where SHUFFLED is 1,
:func:`shuffle_bytes` of it. The content is the table's length (4 bytes), the table, and little-endian planes: integers
of all quantized tensors, those that no digit holds, float16 steps, then tensors kept as they are, each in the table's
order. The table is JSON, one list a tensor: [name, shape, dtype, stored dtype] for a kept one, [name, shape, dtype,
bits, group, integers a byte] for a quantized one.
"""

import dataclasses
import json
import math
import zlib

import numpy
import torch

from golfray.core.codec import codec_version, compress, decompress, shuffle_bytes, unshuffle_bytes
from golfray.core.integers import pack_integers, unpack_digits
from golfray.core.quantize import dtype_name

FLAT_MAGIC = "golfray-flat 1 "


@dataclasses.dataclass(frozen=True)
class Quantized:
    """Integers of ``bits`` bits, int8 of the tensor's shape; float16 steps (rows, groups); the tensor's own dtype.

    Rows run along the first dimension of two and more, else there is one. ``group``: columns of a step, 0 for all.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    bits: int
    group: int
    dtype: str


@dataclasses.dataclass(frozen=True)
class Kept:
    """Values in the dtype in which they are stored, and the tensor's own dtype."""

    values: torch.Tensor
    dtype: str


def row_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tensor of any shape."""
    rows = shape[0] if len(shape) > 1 else 1
    return rows, math.prod(shape) // max(rows, 1)


def scale_shape(shape: tuple[int, ...], group: int) -> tuple[int, int]:
    """Rows and groups of a tensor's steps."""
    rows, columns = row_shape(shape)
    return rows, max(-(-columns // group), 1) if group else 1


def write_content(tensors: dict[str, Quantized | Kept], digits: dict[str, int]) -> bytes:
    """The content for tensors by name, the same on any machine; ``digits``: integers a byte, 1 where absent."""
    table: list[list] = []
    codes, beyond, scales, kept = [], [], [], []
    for name, stored in tensors.items():
        if isinstance(stored, Kept):
            table.append([name, list(stored.values.shape), stored.dtype, dtype_name(stored.values.dtype)])
            kept.append(plane_bytes(stored.values))
        else:
            packing = digits.get(name, 1)
            table.append([name, list(stored.codes.shape), stored.dtype, stored.bits, stored.group, packing])
            packed, rest = pack_integers(stored.codes.cpu().contiguous().numpy(), packing)
            codes.append(packed)
            beyond.append(rest)
            scales.append(plane_bytes(stored.scales))
    text = json.dumps(table, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *codes, *beyond, *scales, *kept])


def read_content(content: bytes) -> dict[str, Quantized | Kept]:
    """What :func:`write_content` was given. Raises ``ValueError`` where there are more or fewer bytes than told."""
    place = 4 + int.from_bytes(content[:4], "little")
    table = json.loads(content[4:place])

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        if place > len(content):
            raise ValueError(f"artifact's tensors are longer than its {len(content)} bytes")
        return content[place - count : place]

    def take_tensor(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        plane = numpy.frombuffer(take(kind.itemsize * math.prod(shape)), f"<i{kind.itemsize}")
        return torch.from_numpy(plane.astype(f"i{kind.itemsize}")).view(kind).reshape(shape)

    quantized, codes = [entry for entry in table if len(entry) > 4], {}
    for name, shape, _, _, _, digits in quantized:
        codes[name] = unpack_digits(take(-(-math.prod(shape) // digits)), math.prod(shape), digits)
    for flat, beyond in codes.values():
        flat[beyond] = numpy.frombuffer(take(int(beyond.sum())), numpy.int8)
    steps = {name: take_tensor(scale_shape(shape, group), "float16") for name, shape, _, _, group, _ in quantized}
    tensors: dict[str, Quantized | Kept] = {}
    for name, shape, dtype, stored, *more in table:
        if more:
            whole = torch.from_numpy(codes[name][0]).reshape(shape)
            tensors[name] = Quantized(whole, steps[name], stored, more[0], dtype)
        else:
            tensors[name] = Kept(take_tensor(shape, stored), dtype)
    if place < len(content):
        raise ValueError(f"artifact has {len(content) - place} bytes that belong to no tensor")
    return tensors


def plane_bytes(tensor: torch.Tensor) -> bytes:
    """Elements in row-major order, little-endian."""
    size = tensor.element_size()
    whole = tensor.cpu().contiguous().reshape(-1).view(getattr(torch, f"int{8 * size}"))
    return whole.numpy().astype(f"<i{size}").tobytes()


def seal(content: bytes, codec: str, level: int, shuffle: bool) -> bytes:
    """The artifact's bytes: compressed behind a line that says how."""
    body = shuffle_bytes(content, 2) if shuffle else content
    line = f"{FLAT_MAGIC}{codec} {codec_version(codec)} {int(shuffle)} {len(body)} "
    return f"{line}{checksum(line.encode(), body):08x}\n".encode() + compress(body, codec, level)


def unseal(artifact: bytes) -> bytes:
    """The content that was sealed. Raises ``ValueError`` where it is another now."""
    line, _, packed = artifact.partition(b"\n")
    codec, _, shuffled, length, crc = line.decode().removeprefix(FLAT_MAGIC).split(" ")
    body = decompress(packed, codec)
    if len(body) != int(length) or checksum(line[:-8], body) != int(crc, 16):
        raise ValueError("artifact is damaged: length or CRC32 is another")
    return unshuffle_bytes(body) if shuffled == "1" else body


def checksum(line: bytes, body: bytes) -> int:
    """CRC32 of a body behind its line."""
    return zlib.crc32(body, zlib.crc32(line))
