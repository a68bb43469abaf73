"""What must hold between settings, beyond what each of them may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from golfray.config import sections
from golfray.config.errors import shown
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import read_overrides

if TYPE_CHECKING:
    from golfray.config.schema import Config


@dataclasses.dataclass(frozen=True)
class Rule:
    """What must hold between settings: ``paths`` are those that could be changed to mend it.

    ``broken`` gives the message where it does not hold, None where it does.
    """

    paths: tuple[str, ...]
    broken: Callable[[Config], str | None]


def _heads_divide_width(config: Config) -> str | None:
    dim, heads = config.model.model_dim, config.model.num_heads
    if dim % heads == 0 and (dim // heads) % 2 == 0:
        return None
    return f"model_dim / num_heads must be an even integer, got {dim} / {heads} = {dim / heads:g}"


def _kv_heads_divide_heads(config: Config) -> str | None:
    heads, kv_heads = config.model.num_heads, config.model.num_kv_heads
    return None if heads % kv_heads == 0 else f"num_kv_heads must divide num_heads ({heads}), got {kv_heads}"


def _mlp_width_is_whole(config: Config) -> str | None:
    dim, mult = config.model.model_dim, config.model.mlp_mult
    width = mult * dim
    if math.isinf(width):
        return f"mlp_mult * model_dim must be finite, got {mult:g} * {dim}"
    # A multiple such as 992 / 96 comes back from the product one rounding error beside the integer that was meant.
    if round(width) >= 1 and abs(width - round(width)) < 1e-6:
        return None
    return (
        f"mlp_mult * model_dim must be a whole number of channels, got {mult:g} * {dim} = {width:g}; "
        f"the nearest is {max(round(width), 1) / dim!r}"
    )


def _slices_fill_step(config: Config) -> str | None:
    batch = config.batch
    unit = batch.slices * batch.seq_len
    if batch.tokens % unit == 0:
        return None
    near = sorted({max(batch.tokens // unit, 1) * unit, (batch.tokens // unit + 1) * unit})
    return (
        f"tokens must be a multiple of slices * seq_len ({batch.slices} * {batch.seq_len} = {unit}), "
        f"got {batch.tokens}; nearest: {' or '.join(map(str, near))}"
    )


def _workers_share_slices(config: Config) -> str | None:
    slices, workers = config.batch.slices, config.workers
    return None if slices % workers == 0 else f"slices must be a multiple of workers ({workers}), got {slices}"


def _validation_has_a_sequence(config: Config) -> str | None:
    batch = config.batch
    least = batch.slices * batch.seq_len
    if batch.val_tokens >= least:
        return None
    return (
        f"val_tokens must be >= slices * seq_len ({batch.slices} * {batch.seq_len} = {least}), got {batch.val_tokens}"
    )


def _windows_overlap_or_touch(config: Config) -> str | None:
    stride, seq_len = config.evaluation.sliding_stride, config.batch.seq_len
    if stride is None or stride <= seq_len:
        return None
    return f"sliding_stride must be <= seq_len ({seq_len}), or tokens between windows go without a score; got {stride}"


def _snapshots_are_taken(config: Config) -> str | None:
    averaging, schedule = config.averaging, config.schedule
    if averaging.method != "swa" or averaging.swa_start_share is not None:
        return None
    falls = schedule.warmdown_share is not None or schedule.warmdown_steps > 0
    if falls and schedule.lr_floor < averaging.swa_start_multiplier:
        return None
    lowest = schedule.lr_floor if falls else 1.0
    return (
        f"swa_start_multiplier must be > the lowest learning-rate multiplier ({lowest:g}), or no snapshot is ever "
        f"taken; got {averaging.swa_start_multiplier:g}"
    )


def _run_ends(config: Config) -> str | None:
    if config.stop.steps is not None or config.stop.seconds is not None:
        return None
    return "steps and seconds are both null; set at least one"


def _are_bits(bits: int) -> bool:
    return 2 <= bits <= 8 or bits in (16, 32)


def _bits_of(name: str) -> Callable[[Config], str | None]:
    def broken(config: Config) -> str | None:
        bits, reference = getattr(config.export, name), config.export.format == "reference"
        small = name in ("bits_control", "bits_small")
        if reference and not small and not 4 <= bits <= 8:
            return f"must be 4 to 8 under export.format reference, got {bits}; under flat it may be 2 to 8, 16 or 32"
        if not _are_bits(bits):
            return f"must be 2 to 8, 16 or 32, got {bits}"
        return None

    return broken


def _only_flat(name: str) -> Callable[[Config], str | None]:
    default = getattr(ExportSettings(), name)

    def broken(config: Config) -> str | None:
        value = getattr(config.export, name)
        if config.export.format == "flat" or value == default:
            return None
        return (
            f"{name} {shown(value)} is not for export.format reference, which has {shown(default)}; set format to flat"
        )

    return broken


def _level_of_codec(config: Config) -> str | None:
    codec, level = config.export.codec, config.export.codec_level
    low, high = CODEC_LEVELS[codec]
    return None if low <= level <= high else f"codec_level of {codec} must be {low} to {high}, got {level}"


def _overrides_are_readable(config: Config) -> str | None:
    wrong = "must be such as '*.attn.c_k.* bits=8; blocks.0.* clip=std k=14'"
    try:
        overrides = read_overrides(config.export.overrides)
    except ValueError as error:
        return f"{wrong}: {error}"
    for pattern, changes in overrides:
        if not changes:
            return f"{wrong}: {pattern!r} changes nothing"
        for key, value in changes.items():
            if not _OVERRIDABLE[key](value):
                return f"{wrong}: {key} {value!r} of {pattern!r} is out of range"
    return None


def _floor_leaves_k(config: Config) -> str | None:
    export = config.export
    if export.scale_floor == 0 or all(getattr(export, f"clip_{name}") != "std" for name in _CLASSES):
        return None
    floor = shown(export.scale_floor)
    return f"scale_floor must be 0 where a clip is std, or the floor and not k decides the steps; got {floor}"


def _overridden_floor_leaves_k(config: Config) -> str | None:
    export = config.export
    for pattern, changes in read_overrides(export.overrides) if export.scale_floor > 0 else []:
        if changes.get("clip") == "std" and changes.get("floor") != 0:
            return f"{pattern!r} must say floor=0 beside clip=std, or scale_floor and not k decides the steps"
    return None


def _reserve_leaves_time(config: Config) -> str | None:
    reserve, seconds = config.export.gptq_reserve_seconds, config.stop.seconds
    if not config.export.gptq or seconds is None or reserve < seconds:
        return None
    return f"gptq_reserve_seconds must be < stop.seconds ({seconds:g}), which they are part of; got {reserve:g}"


# Lowest and highest level of each codec.
CODEC_LEVELS = {"zlib": (0, 9), "lzma": (0, 9), "zstd": (1, 22), "brotli": (0, 11)}
# What an override by tensor name may say; nothing here is true of what is not a number.
_OVERRIDABLE: dict[str, Callable[[Any], bool]] = {
    "bits": _are_bits,
    "clip": lambda clip: clip in get_args(sections.Clip),
    "k": lambda k: 0 < k < math.inf,
    "quantile": lambda quantile: 0 < quantile <= 1,
    "best_of": lambda best_of: 2 <= best_of <= 8,
    "group": lambda group: group >= 0,
    "floor": lambda floor: 0 <= floor < math.inf,
}
_CLASSES = ("attention", "mlp", "embedding")
_BITS = ("bits_attention", "bits_mlp", "bits_embedding", "bits_control", "bits_small")
# Settings of the flat format that the reference format has no meaning for.
_FLAT_ONLY = (
    *("codec", "shuffle", "bits_control", "bits_small", "clip_attention", "clip_mlp", "clip_embedding"),
    *("clip_k_attention", "clip_k_mlp", "clip_k_embedding", "clip_best_of", "group_size", "overrides"),
    *("gptq", "gptq_batches", "gptq_damping", "gptq_reserve_seconds", "search"),
)

# What export.search chooses: under it, nothing else may say anything of these.
SEARCHED = tuple(
    f"export.{name}"
    for name in (
        *(f"{setting}_{kind}" for setting in ("bits", "clip", "clip_k") for kind in _CLASSES),
        *("scale_floor", "group_size", "codec", "codec_level", "shuffle"),
    )
)

RULES = (
    Rule(("model.num_heads", "model.model_dim"), _heads_divide_width),
    Rule(("model.num_kv_heads", "model.num_heads"), _kv_heads_divide_heads),
    Rule(("model.mlp_mult", "model.model_dim"), _mlp_width_is_whole),
    Rule(("batch.tokens", "batch.seq_len", "batch.slices"), _slices_fill_step),
    Rule(("batch.slices", "workers"), _workers_share_slices),
    Rule(("batch.val_tokens", "batch.seq_len", "batch.slices"), _validation_has_a_sequence),
    Rule(("stop.seconds", "stop.steps"), _run_ends),
    Rule(("evaluation.sliding_stride", "batch.seq_len"), _windows_overlap_or_touch),
    Rule(
        (
            "averaging.swa_start_multiplier",
            "averaging.method",
            "schedule.lr_floor",
            "schedule.warmdown_steps",
            "schedule.warmdown_share",
        ),
        _snapshots_are_taken,
    ),
    Rule(("export.codec_level", "export.codec"), _level_of_codec),
    Rule(("export.overrides",), _overrides_are_readable),
    *(Rule((f"export.{name}", "export.format"), _bits_of(name)) for name in _BITS),
    *(Rule((f"export.{name}", "export.format"), _only_flat(name)) for name in _FLAT_ONLY),
    Rule(("export.scale_floor", *(f"export.clip_{name}" for name in _CLASSES)), _floor_leaves_k),
    Rule(("export.overrides", "export.scale_floor"), _overridden_floor_leaves_k),
    Rule(("export.gptq_reserve_seconds", "stop.seconds", "export.gptq"), _reserve_leaves_time),
)
