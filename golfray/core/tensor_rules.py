"""Which export rule holds for which tensor: its class's settings, then overrides by name."""

import dataclasses
import fnmatch

from golfray.core.settings import ExportSettings

INTEGER_BITS = range(2, 9)
FLOAT_BITS = (16, 32)
# Lowest and highest level of each codec.
CODEC_LEVELS = {"zlib": (0, 9), "lzma": (0, 9), "zstd": (1, 22), "brotli": (0, 11)}
CLIPS = ("quantile", "max", "std", "best")


@dataclasses.dataclass(frozen=True)
class TensorRule:
    """How one tensor is stored: equal rules make equal integers of equal weights, so it can be the key of a cache.

    ``bits``: 2 to 8 for integers, 16 or 32 for floating point. ``clip``: how a row's largest magnitude is chosen, with
    ``k``, ``quantile`` and ``best_of`` as the parameters of the clips "std", "quantile" and "best". ``group``: columns
    that share a scale, 0 for the whole row. ``floor``: smallest quantization step.
    """

    bits: int
    clip: str
    k: float
    quantile: float
    best_of: int
    group: int
    floor: float


def rule_of(name: str, elements: int, control: bool, export: ExportSettings) -> TensorRule:
    """The rule of a floating-point tensor by its size, its class, and the overrides that match its name, in order."""
    kind = tensor_class(name)
    bits = getattr(export, f"bits_{kind}")
    if elements <= export.keep_float_max_numel:
        bits = export.bits_control if control else export.bits_small
    rule = TensorRule(
        bits,
        getattr(export, f"clip_{kind}"),
        getattr(export, f"clip_k_{kind}"),
        export.clip_quantile,
        export.clip_best_of,
        export.group_size,
        export.scale_floor,
    )
    for pattern, changes in parse_overrides(export.overrides):
        if fnmatch.fnmatchcase(name, pattern):
            rule = dataclasses.replace(rule, **changes)
    return rule


def tensor_class(name: str) -> str:
    """ "attention", "mlp", or "embedding", which is the token table, an untied head, and whatever is neither."""
    return "attention" if ".attn." in name else "mlp" if ".mlp." in name else "embedding"


def parse_overrides(text: str) -> list[tuple[str, dict]]:
    """Overrides as (pattern of names, fields of :class:`TensorRule`), from "PATTERN bits=8 k=14; PATTERN clip=max".

    Patterns are those of a shell (``*``, ``?``, ``[...]``). Raises ``ValueError`` on anything else.
    """
    kinds = {"bits": int, "clip": str, "k": float, "quantile": float, "best_of": int, "group": int, "floor": float}
    found = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        pattern, *words = part.split()
        changes = {}
        for word in words:
            key, _, value = word.partition("=")
            try:
                changes[key] = kinds[key](value)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{word!r} of {part!r} is none of {', '.join(kinds)}, each =VALUE") from error
            if not allowed(key, changes[key]):
                raise ValueError(f"{word!r} of {part!r} is out of range")
        if not changes:
            raise ValueError(f"{part!r} changes nothing; write PATTERN bits=8 or the like")
        found.append((pattern, changes))
    return found


def allowed(key: str, value) -> bool:  # type: ignore[no-untyped-def]
    """Whether a field of a rule may have a value; what is not a number never may."""
    if key == "bits":
        return value in INTEGER_BITS or value in FLOAT_BITS
    if key == "clip":
        return value in CLIPS
    low, high = {
        "k": (1e-6, 1e6),
        "quantile": (1e-6, 1.0),
        "best_of": (2, 8),
        "group": (0, 2**31),
        "floor": (0.0, 1e4),
    }[key]
    return low <= value <= high
