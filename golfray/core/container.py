"""The flat container: a line of text, then compressed parts of planes of numbers. No pickle; docs/artifact.md.

    golfray-flat 2 CODEC VERSION SHUFFLED LENGTH:PACKED,... CRC32 \\n compressed part, compressed part, ...

Each class of tensors is a part by itself, of LENGTH bytes and PACKED compressed ones; the CRC32 is over the line before
it and the parts. A part is the length of its table (4 bytes), the table, and little-endian planes: integers of all
quantized tensors, those that no digit holds, float16 steps, then tensors kept as they are, each in the table's order.
Where SHUFFLED is 1, steps and kept tensors stand byte plane by byte plane, as :func:`shuffle_bytes` has them. The table
is JSON, one list a tensor: [name, shape, dtype, stored dtype] for a kept one, [name, shape, dtype, bits, group,
integers a byte] for a quantized one.
"""

import dataclasses
import json
import math
import zlib

import numpy
import torch

from golfray.core.codec import codec_version, decompress, shuffle_bytes, shuffled_size, unshuffle_bytes
from golfray.core.integers import pack_integers, unpack_digits
from golfray.core.quantize import dtype_name

FLAT_MAGIC = "golfray-flat 2 "
# Bytes of the numbers that shuffling takes apart: of steps, and at most of kept tensors.
STEP_BYTES, KEPT_BYTES = 2, 4


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


def write_part(tensors: dict[str, Quantized | Kept], digits: dict[str, int], shuffled: bool) -> bytes:
    """The part for tensors by name, the same on any machine; ``digits``: integers a byte, 1 where absent."""
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
    steps, floats = b"".join(scales), b"".join(kept)
    if shuffled:
        steps, floats = shuffle_bytes(steps, STEP_BYTES), shuffle_bytes(floats, KEPT_BYTES)
    return b"".join([len(text).to_bytes(4, "little"), text, *codes, *beyond, steps, floats])


def read_part(part: bytes, shuffled: bool) -> dict[str, Quantized | Kept]:
    """What :func:`write_part` was given. Raises ``ValueError`` where there are more or fewer bytes than told."""
    place = 4 + int.from_bytes(part[:4], "little")
    table = json.loads(part[4:place])

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        if place > len(part):
            raise ValueError(f"artifact's tensors are longer than its {len(part)} bytes")
        return part[place - count : place]

    def take_tensors(wanted: dict[str, tuple[tuple[int, ...], str]], stride: int) -> dict[str, torch.Tensor]:
        kinds = {name: getattr(torch, dtype) for name, (_, dtype) in wanted.items()}
        counts = {name: kinds[name].itemsize * math.prod(shape) for name, (shape, _) in wanted.items()}
        whole, found = sum(counts.values()), {}
        planes = taken = take(shuffled_size(whole, stride) if shuffled else whole)
        if shuffled:
            planes = unshuffle_bytes(taken)
            if shuffle_bytes(planes, stride) != taken:
                raise ValueError(f"artifact's planes of {whole} bytes are not shuffled by {stride}")
        start = 0
        for name, (shape, _) in wanted.items():
            size, end = kinds[name].itemsize, start + counts[name]
            plane = numpy.frombuffer(planes[start:end], f"<i{size}").astype(f"i{size}")
            found[name], start = torch.from_numpy(plane).view(kinds[name]).reshape(shape), end
        return found

    quantized, codes = [entry for entry in table if len(entry) > 4], {}
    for name, shape, _, _, _, digits in quantized:
        codes[name] = unpack_digits(take(-(-math.prod(shape) // digits)), math.prod(shape), digits)
    for flat, beyond in codes.values():
        flat[beyond] = numpy.frombuffer(take(int(beyond.sum())), numpy.int8)
    steps = take_tensors(
        {name: (scale_shape(shape, group), "float16") for name, shape, _, _, group, _ in quantized}, STEP_BYTES
    )
    kept = take_tensors({entry[0]: (entry[1], entry[3]) for entry in table if len(entry) == 4}, KEPT_BYTES)
    if place < len(part):
        raise ValueError(f"artifact has {len(part) - place} bytes that belong to no tensor")
    return {
        name: Quantized(torch.from_numpy(codes[name][0]).reshape(shape), steps[name], stored, more[0], dtype)
        if more
        else Kept(kept[name], dtype)
        for name, shape, dtype, stored, *more in table
    }


def plane_bytes(tensor: torch.Tensor) -> bytes:
    """Elements in row-major order, little-endian."""
    size = tensor.element_size()
    whole = tensor.cpu().contiguous().reshape(-1).view(getattr(torch, f"int{8 * size}"))
    return whole.numpy().astype(f"<i{size}").tobytes()


def seal(parts: list[bytes], packed: list[bytes], codec: str, shuffled: bool) -> bytes:
    """The artifact's bytes: parts as the codec has packed them, behind a line that says how."""
    line = first_line([(len(part), len(some)) for part, some in zip(parts, packed, strict=True)], codec, shuffled)
    return b"".join([line, f"{checksum(line, parts):08x}\n".encode(), *packed])


def first_line(sizes: list[tuple[int, int]], codec: str, shuffled: bool) -> bytes:
    """The line, without its CRC32, for parts of these lengths: before and after they are packed."""
    lengths = ",".join(f"{length}:{packed}" for length, packed in sizes)
    return f"{FLAT_MAGIC}{codec} {codec_version(codec)} {int(shuffled)} {lengths} ".encode()


def unseal(artifact: bytes) -> tuple[list[bytes], bool]:
    """The parts that were sealed, and whether they are shuffled. Raises ``ValueError`` where they are others now."""
    line, _, rest = artifact.partition(b"\n")
    codec, _, shuffled, lengths, crc = line.decode().removeprefix(FLAT_MAGIC).split(" ")
    parts = []
    for pair in filter(None, lengths.split(",")):
        length, packed = map(int, pair.split(":"))
        parts.append(decompress(rest[:packed], codec))
        rest = rest[packed:]
        if len(parts[-1]) != length:
            raise ValueError("artifact is damaged: a part has another length")
    if rest or checksum(line[:-8], parts) != int(crc, 16):
        raise ValueError("artifact is damaged: its CRC32 is another")
    return parts, shuffled == "1"


def checksum(line: bytes, parts: list[bytes]) -> int:
    """CRC32 of parts behind their line."""
    crc = zlib.crc32(line)
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
