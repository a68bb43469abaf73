"""The size of an artifact under k standard deviations, in closed form: nothing is drawn, nothing is compressed.

Where rows are clipped at k of their own standard deviations the quantization step is k / (2^(b-1) - 1) of them, however
large the weights are, so the integers of bell-shaped weights have an entropy that only the bits b and k decide. Weights
have no neighbours that tell anything of them: a codec ends close to that entropy. Section 3.6 of the parameter-golf
reference; docs/size.md has the errors on published records.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

from golfray.core.container import row_shape, scale_shape
from golfray.core.model import is_control
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import TensorRule, rule_of

STEP_BYTES = 2

# Below so many bits of entropy nearly all integers are 0, and codecs need up to 28 % more than the entropy, each
# another share at another k: the middle of it, and how far off that is.
_SPARSE_BITS = 1.0
SPARSE_EXCESS = 0.12

# The table says of each tensor what it is; these are compressed bytes.
HEADER_BYTES = 100
TENSOR_BYTES = 10

# By codec and lowest level: bytes over those of the formula, and how far that goes up and down with bits and k, as
# measured on bell-shaped weights at 2 to 8 bits (docs/size.md).
_CODEC_FACTORS = {
    "zlib": ((6, 1.015, 0.015), (1, 1.046, 0.02)),
    "lzma": ((6, 1.022, 0.010), (0, 1.099, 0.03)),
    "zstd": ((1, 1.014, 0.010),),
    "brotli": ((10, 1.003, 0.004), (4, 1.025, 0.03), (0, 1.030, 0.03)),
}


@dataclasses.dataclass(frozen=True)
class Content:
    """What one part of an artifact holds, in bytes before a codec: the entropy of the integers, steps, kept values.

    ``sparse``: how many of the ``integers``' bytes are of tensors of hardly anything but zeros.
    """

    integers: float = 0.0
    steps: float = 0.0
    kept: float = 0.0
    sparse: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.integers + self.steps + self.kept

    def __add__(self, other: Content) -> Content:
        return Content(
            self.integers + other.integers,
            self.steps + other.steps,
            self.kept + other.kept,
            self.sparse + other.sparse,
        )


@functools.lru_cache(maxsize=1024)
def code_entropy(bits: int, k: float) -> float:
    """Bits of information in one weight of a normal distribution, quantized to ``bits`` bits and clipped at ``k`` sd.

    The integer q, of at most Q = 2^(bits-1) - 1 either way, stands for what is nearer to q k / Q than to others; what
    is beyond the ends stands for the ends. At most log2(2 Q + 1).
    """
    largest = 2 ** (bits - 1) - 1
    step = k / largest
    # P(weight > (q - 1/2) step) for q = 0 .. Q + 1; nothing is left above the end.
    above = [0.5 * math.erfc((q - 0.5) * step / math.sqrt(2)) for q in range(largest + 1)] + [0.0]
    middle = above[0] - above[1] if largest else 1.0
    shares = [middle] + 2 * [above[q] - above[q + 1] for q in range(1, largest + 1)]
    return -math.fsum(share * math.log2(share) for share in shares if share > 0)


def closed_form(shapes: Mapping[str, tuple[int, ...]], export: ExportSettings) -> dict[str, Content]:
    """What each part of a flat artifact holds, for floating-point tensors of these names and shapes.

    Parts: ``attention``, ``mlp``, ``embedding`` (table, head, whatever is neither), and ``kept`` for all that is at
    most ``export.keep_float_max_numel`` elements. Raises ``ValueError`` naming a tensor of integers that is not
    clipped at standard deviations, or whose step has a floor: its size depends on the weights.
    """
    parts = dict.fromkeys(("attention", "mlp", "embedding", "kept"), Content())
    for name, shape in shapes.items():
        rule = rule_for(name, shape, export)
        if rule.bits <= 8 and not _is_closed(rule):
            raise ValueError(
                f"{name} is clipped by {rule.clip} with the floor {rule.floor:g}: no closed form has its size"
            )
        parts[part_of(name, shape, export)] += _content(shape, rule)
    return parts


def has_closed_form(shapes: Mapping[str, tuple[int, ...]], export: ExportSettings) -> bool:
    """Whether :func:`closed_form` knows the size: no tensor's depends on its weights, and the codec was measured."""
    rules = [rule_for(name, shape, export) for name, shape in shapes.items()]
    measured = export.codec in _CODEC_FACTORS and export.codec_level >= _CODEC_FACTORS[export.codec][-1][0]
    return export.format == "flat" and measured and all(rule.bits > 8 or _is_closed(rule) for rule in rules)


def codec_factor(codec: str, level: int) -> tuple[float, float]:
    """Compressed bytes over those of the closed form, and how far off that is for some bits and k.

    Raises ``ValueError`` where a level does not compress, and where nothing was measured of the codec.
    """
    if codec not in _CODEC_FACTORS:
        raise ValueError(f"nothing was measured of the codec {codec}: no formula has its size")
    for lowest, factor, error in _CODEC_FACTORS[codec]:
        if level >= lowest:
            return factor, error
    raise ValueError(f"{codec} at level {level} does not compress")


def part_of(name: str, shape: tuple[int, ...], export: ExportSettings) -> str:
    """The part of an artifact that a tensor is counted in."""
    if math.prod(shape) <= export.keep_float_max_numel:
        return "kept"
    return "attention" if ".attn." in name else "mlp" if ".mlp." in name else "embedding"


def rule_for(name: str, shape: tuple[int, ...], export: ExportSettings) -> TensorRule:
    """How a tensor of this name and shape is stored, overrides by name included."""
    return rule_of(name, math.prod(shape), is_control(name), export)


def _is_closed(rule: TensorRule) -> bool:
    return rule.clip == "std" and rule.floor == 0


def _content(shape: tuple[int, ...], rule: TensorRule) -> Content:
    elements = math.prod(shape)
    if rule.bits > 8:
        return Content(kept=elements * rule.bits / 8)
    _, columns = row_shape(shape)
    # A row of one element is its own deviation: all that is left of it is its sign.
    entropy = code_entropy(rule.bits, rule.k) if columns > 1 else 1.0
    integers, steps = elements * entropy / 8, STEP_BYTES * math.prod(scale_shape(shape, rule.group))
    return Content(integers, steps, sparse=integers if entropy < _SPARSE_BITS else 0.0)
