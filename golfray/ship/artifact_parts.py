"""Where an artifact's bytes go: for each class of tensors what is stored of it, and what that could not go below."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy
import torch

from golfray.core.artifact import unpack_artifact
from golfray.core.container import FLAT_MAGIC, Kept, Quantized, plane_bytes
from golfray.core.exporter import read_artifact
from golfray.core.model import is_control
from golfray.core.quantize import tensor_bits
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import class_of


@dataclasses.dataclass(frozen=True)
class Part:
    """The tensors of one class in an artifact.

    ``bits``: of an element as it is stored, each that occurs. ``bytes_raw``: integers at one a byte, steps and kept
    tensors, before any codec. ``bytes_entropy``: those under a code that is ideal for each tensor's integers by
    themselves, and for each byte of its other numbers; a codec that finds nothing else comes close to it from above.
    """

    name: str
    tensors: int
    elements: int
    bits: tuple[int, ...]
    bytes_raw: int
    bytes_entropy: int


def artifact_parts(content: bytes, export: ExportSettings) -> tuple[Part, ...]:
    """The parts of an artifact of our own, largest first."""
    members: dict[str, list[Quantized | Kept]] = {}
    for name, stored in _stored(content, export).items():
        members.setdefault(_class_of(name, _elements(stored), export), []).append(stored)
    parts = [_part(name, stored) for name, stored in members.items()]
    return tuple(sorted(parts, key=lambda part: part.bytes_entropy, reverse=True))


def _stored(content: bytes, export: ExportSettings) -> dict[str, Quantized | Kept]:
    if content.startswith(FLAT_MAGIC.encode()):
        return read_artifact(content)
    container = unpack_artifact(content)
    found: dict[str, Quantized | Kept] = {
        name: Kept(tensor, str(tensor.dtype)) for name, tensor in container["passthrough"].items()
    }
    for name, codes in container["quantized"].items():
        found[name] = Quantized(codes, container["scales"][name], tensor_bits(name, export), 0, "")
    return found


def _class_of(name: str, elements: int, export: ExportSettings) -> str:
    if elements <= export.keep_float_max_numel:
        return "control" if is_control(name) else "small"
    return class_of(name)


def _elements(stored: Quantized | Kept) -> int:
    return (stored.values if isinstance(stored, Kept) else stored.codes).numel()


def _part(name: str, members: list[Quantized | Kept]) -> Part:
    raw, ideal, bits = 0, 0.0, set()
    for stored in members:
        if isinstance(stored, Quantized):
            raw += stored.codes.numel()
            ideal += _entropy_bytes(stored.codes.contiguous().view(torch.uint8).numpy())
            bits.add(stored.bits)
        floats = stored.values if isinstance(stored, Kept) else stored.scales
        if isinstance(stored, Kept):
            bits.add(8 * floats.element_size())
        planes = numpy.frombuffer(plane_bytes(floats), numpy.uint8).reshape(-1, floats.element_size())
        raw += planes.size
        ideal += sum(_entropy_bytes(plane) for plane in planes.T)
    return Part(name, len(members), sum(map(_elements, members)), tuple(sorted(bits)), raw, round(ideal))


def _entropy_bytes(values: numpy.ndarray) -> float:
    """Order-0 entropy of some bytes times their number, in bytes."""
    counts = numpy.bincount(values.reshape(-1), minlength=256)
    counts = counts[counts > 0]
    return float((counts * (math.log2(counts.sum()) - numpy.log2(counts))).sum()) / 8 if len(counts) else 0.0


def part_lines(parts: Iterable[Part]) -> list[str]:
    """A table for a person."""
    lines = [f"{'part':<10} {'tensors':>7} {'elements':>12} {'bits':>7} {'raw bytes':>12} {'entropy':>12}"]
    for part in parts:
        bits = ",".join(map(str, part.bits))
        lines.append(
            f"{part.name:<10} {part.tensors:>7,} {part.elements:>12,} {bits:>7} {part.bytes_raw:>12,} "
            f"{part.bytes_entropy:>12,}"
        )
    return lines
