"""The flat container: a line of text, then compressed a table and planes of numbers. No pickle; docs/artifact.md.

    golfray-flat 1 CODEC VERSION SHUFFLED LENGTH CRC32 \\n compressed(body)

The body (LENGTH bytes; the CRC32 is over the line before it and the body) is the content or, where SHUFFLED is 1,
:func:`shuffle_bytes` of it. The content is the table's length (4 bytes), the table, and little-endian planes: integers
of all quantized tensors, those that no digit holds, float16 scales, then tensors kept as they are, each in the table's
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
from golfray.core.integers import pack_integers, packed_bytes, unpack_digits
from golfray.core.quantize import dtype_name

FLAT_MAGIC = "golfray-flat 1"
LONGEST_HEADER = 120


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


@dataclasses.dataclass(frozen=True)
class FlatHeader:
    """The line of text: codec and its library's version, whether the body is shuffled, its length and CRC32."""

    codec: str
    version: str
    shuffled: bool
    length: int
    crc: int
    start: int


def scale_shape(shape: tuple[int, ...], group: int) -> tuple[int, int]:
    """Rows and groups of a tensor's steps."""
    rows = shape[0] if len(shape) > 1 else 1
    columns = math.prod(shape[1:] if len(shape) > 1 else shape)
    return rows, max(-(-columns // group), 1) if group else 1


def write_content(tensors: dict[str, Quantized | Kept], digits: dict[str, int]) -> bytes:
    """The content for tensors by name; ``digits`` has the integers a byte of each quantized one (1 where absent).

    The same on any machine.
    """
    table: list[list] = []
    codes, beyond, scales, kept = [], [], [], []
    for name, stored in tensors.items():
        if isinstance(stored, Kept):
            table.append([name, list(stored.values.shape), stored.dtype, dtype_name(stored.values.dtype)])
            kept.append(plane_bytes(stored.values))
            continue
        packing = digits.get(name, 1)
        table.append([name, list(stored.codes.shape), stored.dtype, stored.bits, stored.group, packing])
        packed, rest = pack_integers(stored.codes.cpu().contiguous().numpy(), packing)
        codes.append(packed)
        beyond.append(rest)
        scales.append(plane_bytes(stored.scales))
    text = json.dumps(table, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *codes, *beyond, *scales, *kept])


def read_content(content: bytes) -> dict[str, Quantized | Kept]:
    """What :func:`write_content` was given. Raises ``ValueError`` where the planes are longer or shorter than told."""
    place = 4 + int.from_bytes(content[:4], "little")
    table = read_table(content)

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        if place > len(content):
            raise ValueError(f"artifact's tensors need more than the {len(content)} bytes it holds")
        return content[place - count : place]

    quantized = [entry for entry in table if len(entry) > 4]
    found = {}
    for name, shape, _, _, _, packing in quantized:
        count = math.prod(shape)
        found[name] = unpack_digits(take(packed_bytes(count, packing)), count, packing)
    for flat, missing in found.values():
        flat[missing] = numpy.frombuffer(take(int(missing.sum())), numpy.int8)
    scales = {
        name: plane_tensor(take, scale_shape(shape, group), "float16") for name, shape, _, _, group, _ in quantized
    }
    tensors: dict[str, Quantized | Kept] = {}
    for name, shape, dtype, stored, *more in table:
        if more:
            codes = torch.from_numpy(found[name][0]).reshape(shape)
            tensors[name] = Quantized(codes, scales[name], stored, more[0], dtype)
        else:
            tensors[name] = Kept(plane_tensor(take, shape, stored), dtype)
    if place != len(content):
        raise ValueError(f"artifact has {len(content) - place} bytes that belong to no tensor")
    return tensors


def read_table(content: bytes) -> list[list]:
    """The table of a content."""
    return json.loads(content[4 : 4 + int.from_bytes(content[:4], "little")])


def plane_bytes(tensor: torch.Tensor) -> bytes:
    """Elements in row-major order, little-endian."""
    size = tensor.element_size()
    whole = tensor.detach().cpu().contiguous().reshape(-1).view(getattr(torch, f"int{8 * size}"))
    return whole.numpy().astype(f"<i{size}", copy=False).tobytes()


def plane_tensor(take, shape, dtype: str) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """A tensor of a shape and dtype from the bytes that ``take(count)`` gives."""
    kind = getattr(torch, dtype)
    size = kind.itemsize
    plane = numpy.frombuffer(take(size * math.prod(shape)), f"<i{size}").astype(f"i{size}")
    return torch.from_numpy(plane).view(kind).reshape(tuple(shape))


def seal(content: bytes, codec: str, level: int, shuffle: bool) -> bytes:
    """The artifact's bytes: compressed behind a line that says how."""
    body = shuffle_bytes(content, 2) if shuffle else content
    line = f"{FLAT_MAGIC} {codec} {codec_version(codec)} {int(shuffle)} {len(body)} "
    return f"{line}{zlib.crc32(body, zlib.crc32(line.encode())):08x}\n".encode() + compress(body, codec, level)


def read_header(artifact: bytes) -> FlatHeader:
    """The line of an artifact. Raises ``ValueError`` where it is none."""
    line, newline, _ = artifact[:LONGEST_HEADER].partition(b"\n")
    words = line.decode("ascii", "replace").split(" ")
    if not newline or words[:2] != FLAT_MAGIC.split() or len(words) != 7:
        raise ValueError("artifact does not begin as a flat container does")
    codec, version, shuffled, length, crc = words[2:]
    try:
        return FlatHeader(codec, version, {"0": False, "1": True}[shuffled], int(length), int(crc, 16), len(line) + 1)
    except (KeyError, ValueError) as error:
        raise ValueError(f"artifact's first line is damaged: {line!r}") from error


def unseal(artifact: bytes) -> bytes:
    """The content that was sealed.

    Memory is taken for the length that the line tells. Raises ``ValueError`` where anything of the artifact was changed
    or cut.
    """
    header = read_header(artifact)
    body = decompress(artifact[header.start :], header.codec, header.length)
    if zlib.crc32(body, zlib.crc32(artifact[: header.start - 9])) != header.crc:
        raise ValueError("artifact is damaged: its CRC32 is another")
    return unshuffle_bytes(body) if header.shuffled else body
