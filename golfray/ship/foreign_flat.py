"""A flat artifact from anywhere: inflated within a bound and its table read by rule before anything is allocated."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import torch

from golfray.core.container import FLAT_MAGIC, Kept, checksum, read_part
from golfray.core.exporter import restore
from golfray.core.integers import BASES
from golfray.ship.bounded_inflate import inflate

_PAIR = "[0-9]{1,12}:[0-9]{1,12}"
_LINE = re.compile(rf"([a-z]{{1,12}}) [0-9A-Za-z.+-]{{1,40}} ([01]) ({_PAIR}(?:,{_PAIR}){{0,15}}) ([0-9a-f]{{8}})")
_LONGEST_LINE = 520
_FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class FlatContent:
    """Parts of an artifact, uncompressed, and whether their floating-point planes are shuffled."""

    parts: tuple[bytes, ...]
    shuffled: bool


def open_flat(artifact: bytes, most_bytes: int, most_tensors: int) -> FlatContent:
    """What is inside a flat artifact: parts as long as its line says, with the CRC32 it says, and tables that hold.

    Raises ``ValueError`` where the artifact is damaged or cut, says more than ``most_bytes`` or ``most_tensors``, or
    has a table with anything but tensors whose planes fill its part to the last byte.
    """
    line, newline, _ = artifact[:_LONGEST_LINE].partition(b"\n")
    found = _LINE.fullmatch(line.decode("ascii", "replace").removeprefix(FLAT_MAGIC))
    if not newline or found is None:
        raise ValueError("artifact's first line is damaged")
    codec, crc = found[1], int(found[4], 16)
    sizes = [tuple(map(int, pair.split(":"))) for pair in found[3].split(",")]
    length, packed = (sum(numbers) for numbers in zip(*sizes, strict=True))
    if length > most_bytes:
        raise ValueError(f"artifact says it inflates to {length} bytes, at most {most_bytes} are possible")
    place, parts = len(line) + 1, []
    if place + packed != len(artifact):
        raise ValueError(
            f"artifact is cut short or has bytes after its end: {len(artifact) - place} behind its first line, "
            f"which says {packed}"
        )
    for size, compressed in sizes:
        parts.append(inflate(artifact[place : place + compressed], codec, size))
        place += compressed
    if checksum(line[:-8], parts) != crc:
        raise ValueError("artifact is damaged: its CRC32 is another")
    content = FlatContent(tuple(parts), found[2] == "1")
    _check_tables(content, most_tensors)
    return content


def flat_shapes(content: FlatContent) -> dict[str, torch.Size]:
    """Shape of every tensor in an opened content."""
    return {entry[0]: torch.Size(entry[1]) for part in content.parts for entry in _table(part)}


def flat_state(content: FlatContent) -> dict[str, torch.Tensor]:
    """The weights in an opened content; raises ``ValueError`` where one would not be finite in its dtype."""
    state = {}
    for part in content.parts:
        for name, stored in read_part(part, content.shuffled).items():
            kept = stored.values if isinstance(stored, Kept) else stored.scales
            if kept.is_floating_point() and not bool(torch.isfinite(kept).all()):
                raise ValueError(f"{name}: artifact has values that are not finite")
            state[name] = restore(stored)
            if not bool(torch.isfinite(state[name]).all()):
                raise ValueError(f"{name}: artifact has values beyond {stored.dtype}")
    return state


def _table(part: bytes) -> list[list]:
    return json.loads(part[4 : 4 + int.from_bytes(part[:4], "little")])


def _check_tables(content: FlatContent, most_tensors: int) -> None:
    """Raise ``ValueError`` on a table that is not one, before its sizes mean anything to anyone."""
    names: set[str] = set()
    for part in content.parts:
        size = int.from_bytes(part[:4], "little")
        # Names are at most a few hundred characters; text that is much longer is there to fill memory.
        if len(part) < 4 or size > min(len(part) - 4, 1024 * (most_tensors + 1)):
            raise ValueError(f"artifact's table of {size} bytes is longer than it can be")
        try:
            table = _table(part)
        except (ValueError, RecursionError) as error:
            raise ValueError("artifact's table is no JSON") from error
        if not isinstance(table, list) or len(names) + len(table) > most_tensors:
            raise ValueError(f"artifact's tables must be lists of at most {most_tensors} tensors")
        for entry in table:
            if not isinstance(entry, list) or not _is_entry(entry) or entry[0] in names:
                raise ValueError(
                    f"artifact's table has an entry that is no tensor, or stands twice: {str(entry)[:120]}"
                )
            names.add(entry[0])
        if 4 + size + sum(map(_least_bytes, table)) > len(part):
            raise ValueError(f"artifact's tensors are longer than its {len(part)} bytes")


def _is_entry(entry: list) -> bool:
    """Whether an entry is [name, shape, dtype, stored dtype] or [name, shape, dtype, bits, group, digits]."""
    if len(entry) not in (4, 6) or not isinstance(entry[0], str) or not isinstance(entry[1], list):
        return False
    _, shape, dtype, stored, *more = entry
    whole = all(type(number) is int and 0 <= number < 2**40 for number in (*shape, *more))
    if not whole or len(shape) > 8 or dtype not in _FLOATS:
        return False
    if not more:
        return stored in _FLOATS
    return type(stored) is int and 2 <= stored <= 8 and more[1] in BASES


def _least_bytes(entry: list) -> int:
    """Bytes that an entry's planes take at least: all of a kept tensor, integers and nothing beyond them."""
    count = math.prod(entry[1])
    if len(entry) == 4:
        return count * getattr(torch, entry[3]).itemsize
    return -(-count // entry[5])
