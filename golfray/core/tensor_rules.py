"""Which export rule holds for which tensor: its class's settings, then overrides by name."""

import dataclasses
import fnmatch

from golfray.core.settings import ExportSettings


@dataclasses.dataclass(frozen=True)
class TensorRule:
    """How one tensor is stored: equal rules make equal integers of equal weights, so it can be the key of a cache.

    ``bits``: 2 to 8 for integers, 16 or 32 for floating point. ``clip``: "quantile", "max", "std" or "best", with the
    parameters ``quantile``, ``k`` (of "std") and ``best_of``. ``group``: columns that share a step, 0 for the whole
    row. ``floor``: the smallest step.
    """

    bits: int
    clip: str
    k: float
    quantile: float
    best_of: int
    group: int
    floor: float


def class_of(name: str) -> str:
    """The class of a tensor: attention, mlp, or embedding: the token table, an untied head, and whatever is neither."""
    return "attention" if ".attn." in name else "mlp" if ".mlp." in name else "embedding"


def rule_of(name: str, elements: int, control: bool, export: ExportSettings) -> TensorRule:
    """The rule of a floating-point tensor by its size, its class, and the overrides that match its name, in order."""
    kind = class_of(name)
    if elements <= export.keep_float_max_numel:
        bits = export.bits_control if control else export.bits_small
    else:
        bits = getattr(export, f"bits_{kind}")
    rule = TensorRule(
        bits,
        getattr(export, f"clip_{kind}"),
        getattr(export, f"clip_k_{kind}"),
        export.clip_quantile,
        export.clip_best_of,
        export.group_size,
        export.scale_floor,
    )
    for pattern, changes in read_overrides(export.overrides):
        if fnmatch.fnmatchcase(name, pattern):
            rule = dataclasses.replace(rule, **changes)
    return rule


def read_overrides(text: str) -> list[tuple[str, dict]]:
    """Overrides as (pattern of names, fields of :class:`TensorRule`), from "PATTERN bits=8 k=14; PATTERN clip=max".

    Patterns are those of a shell (``*``, ``?``, ``[...]``). Raises ``ValueError`` on what is not of this form; the
    config floor looks at the values.
    """
    found = []
    kinds = {field.name: field.type for field in dataclasses.fields(TensorRule)}
    for part in filter(str.strip, text.split(";")):
        pattern, *words = part.split()
        changes = {}
        for word in words:
            key, _, value = word.partition("=")
            if key not in kinds:
                raise ValueError(f"{word!r} is none of {', '.join(kinds)}, each =VALUE")
            kind: type = kinds[key]  # type: ignore[assignment]
            changes[key] = kind(value)
        found.append((pattern, changes))
    return found
