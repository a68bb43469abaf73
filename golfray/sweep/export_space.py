"""Which export settings a search may try: the choices for each class of tensors.

A row clipped at k standard deviations has steps of k / (2^(bits-1) - 1) deviations. Under an entropy coder the step
decides both size and error, and bits only where the tail ends. So steps are laid out evenly in their logarithm, each
with the fewest bits that hold the tail and one more, and k follows from the two.
"""

from __future__ import annotations

import dataclasses
import math

from golfray.core.settings import ExportSettings

CLASSES = ("attention", "mlp", "embedding")
CLIPS = ("quantile", "max", "std", "best")
STRONGEST = {"zlib": 9, "lzma": 9, "zstd": 22, "brotli": 11}

_BITS = (2, 3, 4, 5, 6, 7, 8, 16, 32)
# Steps in standard deviations: at the finest an 8-bit integer is used to the full, at the widest nearly all are 0.
_FINEST, _WIDEST = 0.04, 1.5
_STEPS = 10

Choice = dict[str, int | float | str]


@dataclasses.dataclass(frozen=True)
class ExportSpace:
    """What a search may choose from; a tuple of one value fixes it.

    ``bits_*``: 2 to 8, or 16 or 32 for floating point. ``clips``: "quantile", "max", "std" or "best", for every class.
    ``k``: bounds of "std". ``group_sizes``: columns that share a step, 0 for a whole row. ``codecs``: each at its
    strongest level; a codec changes no weight, so every quantization is sized under each of them. Raises ``ValueError``
    on a value that no export has.
    """

    bits_attention: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    bits_mlp: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    bits_embedding: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 16)
    clips: tuple[str, ...] = ("std", "best", "max")
    k: tuple[float, float] = (1.0, 40.0)
    group_sizes: tuple[int, ...] = (0, 64)
    gptq: tuple[bool, ...] = (False, True)
    codecs: tuple[str, ...] = ("zlib", "lzma", "zstd", "brotli")
    shuffles: tuple[bool, ...] = (True,)

    def __post_init__(self) -> None:
        known = {
            "bits_attention": _BITS,
            "bits_mlp": _BITS,
            "bits_embedding": _BITS,
            "clips": CLIPS,
            "gptq": (False, True),
            "codecs": tuple(STRONGEST),
            "shuffles": (False, True),
        }
        for name, allowed in known.items():
            values = getattr(self, name)
            if not values or any(value not in allowed for value in values):
                raise ValueError(f"export.search.{name} must be some of {list(allowed)}, got {list(values)}")
        if not self.group_sizes or any(size < 0 for size in self.group_sizes):
            raise ValueError(f"export.search.group_sizes must be numbers >= 0, got {list(self.group_sizes)}")
        if not 0 < self.k[0] <= self.k[1] < math.inf:
            raise ValueError(f"export.search.k must be 0 < low <= high, got {list(self.k)}")

    def variants(self) -> list[Choice]:
        """What holds for all classes at once: whether there is GPTQ, and the group size.

        Groups are tried with the first value of ``gptq`` alone, where there are whole rows to compare them with.
        """
        return [
            {"gptq": gptq, "group_size": size}
            for size in self.group_sizes
            for gptq in (self.gptq[:1] if size and 0 in self.group_sizes else self.gptq)
        ]


def base_export(export: ExportSettings) -> ExportSettings:
    """The settings that a search starts from: those given, in the flat format; the codec stands aside.

    Steps have no floor, which would overrule k.
    """
    return dataclasses.replace(
        export,
        format="flat",
        codec="zlib",
        codec_level=STRONGEST["zlib"],
        shuffle=False,
        scale_floor=0.0,
        search=None,
    )


def class_choices(space: ExportSpace, kind: str, variant: Choice) -> list[Choice]:
    """Settings of one class under one variant, from few bits to many; never none.

    GPTQ is tried with "std" alone where the space has it, as it takes seconds instead of milliseconds; groups beside
    whole rows with every third choice.
    """
    bits_allowed = sorted(getattr(space, f"bits_{kind}"))
    clips = tuple(clip for clip in space.clips if clip == "std") if variant["gptq"] else space.clips
    choices = [
        {f"bits_{kind}": bits, f"clip_{kind}": clip}
        for bits in bits_allowed
        for clip in clips or space.clips
        if bits <= 8 and clip != "std"
    ]
    if "std" in space.clips:
        choices += _deviations(space, kind, [bits for bits in bits_allowed if bits <= 8], wide=not variant["gptq"])
    if variant["group_size"] and 0 in space.group_sizes:
        choices = choices[::3]
    return choices + [{f"bits_{kind}": bits} for bits in bits_allowed if bits > 8]


def _deviations(space: ExportSpace, kind: str, bits_allowed: list[int], wide: bool) -> list[Choice]:
    low, high = space.k
    found: dict[tuple[int, float], None] = {}
    for place in range(_STEPS):
        step = _FINEST * (_WIDEST / _FINEST) ** (place / (_STEPS - 1))
        holding = [bits for bits in bits_allowed if step * largest(bits) >= max(shortest_k(bits), low)]
        for bits in holding[: 2 if wide else 1]:
            if step * largest(bits) <= high:
                found[bits, float(f"{step * largest(bits):.4g}")] = None
    for bits in bits_allowed:
        if not any(bits == other for other, _ in found) and (wide or not found):
            # Bounds that leave no step of the row above: what is nearest to a tail just held.
            found[bits, min(max(shortest_k(bits), low), high)] = None
    return [
        {f"bits_{kind}": bits, f"clip_{kind}": "std", f"clip_k_{kind}": k}
        for bits, k in sorted(found, key=lambda pair: pair[1] / largest(pair[0]), reverse=True)
    ]


def largest(bits: int) -> int:
    """Largest integer of a bit-width."""
    return 2 ** (bits - 1) - 1


def shortest_k(bits: int) -> float:
    """Deviations below which clipping a bell curve costs more than finer steps save: about half a deviation a bit."""
    return 0.5 * bits + 0.3
