"""Which export settings a search may try: the choices for each class of tensors, and a seeded draw of them.

A row clipped at k standard deviations has steps of k / (2^(bits-1) - 1) deviations. Under an entropy coder the step
decides both size and error, and bits only where the tail ends; so k is drawn for each bit-width from where clipping
begins to cost more than it saves up to steps so wide that nearly all weights become 0.
"""

from __future__ import annotations

import dataclasses

CLASSES = ("attention", "mlp", "embedding")


@dataclasses.dataclass(frozen=True)
class ExportSpace:
    """The choices, each of which a person may restrict; one value in a tuple fixes it.

    ``bits_*``: 2 to 8, or 16 or 32 for floating point. ``clips``: "quantile", "max", "std", "best". ``k``: bounds of
    "std" for all classes, within what makes sense for the bits. ``group_sizes``: columns that share a step, 0 for a
    whole row. ``codecs``: each at its strongest level. A codec changes no weight, so every quantization is sized under
    each of them.
    """

    bits_attention: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    bits_mlp: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    bits_embedding: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 16)
    clips: tuple[str, ...] = ("std", "best", "max")
    k: tuple[float, float] = (1.0, 40.0)
    group_sizes: tuple[int, ...] = (0, 32)
    gptq: tuple[bool, ...] = (False, True)
    codecs: tuple[str, ...] = ("zlib", "lzma", "zstd", "brotli")
    shuffles: tuple[bool, ...] = (False, True)
