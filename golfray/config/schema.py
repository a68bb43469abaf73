"""The whole configuration: its sections, the rules between fields, and what is known of every dotted path."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo as PydanticField
from pydantic_core import PydanticCustomError

from golfray.config import sections
from golfray.config.errors import ConfigError, nearest, shown
from golfray.core.settings import ExportSettings, RunSettings
from golfray.core.tensor_rules import read_overrides

# Chosen where a run is started, never by an override: they decide which preset the overrides lie over.
CHOSEN_AT_START = frozenset({"preset", "scale"})

CROSS_FIELD = "cross_field"

Scale = Literal["full", "laptop"]
Kind = Literal["float", "int", "bool", "str", "choice"]


class Config(sections.Section):
    """One complete, valid configuration."""

    preset: str
    """Name of the full configuration that everything else lies over."""
    scale: Scale
    """full: the preset as published; laptop: its small form for two CPU cores."""
    workers: Annotated[int, Field(ge=1)]
    """Ranks that train one trial together; each takes slices / workers of a step's micro-batches."""
    cap_bytes: Annotated[int, Field(ge=1)]
    """Largest size of code plus compressed model, in bytes; what is larger is infeasible."""
    model: sections.Model
    optimizer: sections.Optimizer
    muon: sections.Muon
    schedule: sections.Schedule
    batch: sections.Batch
    stop: sections.Stop
    data: sections.Data
    averaging: sections.Averaging
    export: sections.Export
    evaluation: sections.Evaluation
    ship: sections.Ship
    runtime: sections.Runtime

    @model_validator(mode="after")
    def _rules_between_fields(self) -> Config:
        for rule in RULES:
            message = rule.broken(self)
            if message is not None:
                raise PydanticCustomError(CROSS_FIELD, "{message}", {"message": message, "paths": rule.paths})
        return self

    def value(self, path: str) -> Any:
        """The value at a dotted path; raises :class:`ConfigError` where there is no such setting."""
        if path not in CHOSEN_AT_START:
            field_info(path)
        section, _, name = path.rpartition(".")
        return getattr(getattr(self, section) if section else self, name)

    def to_run_settings(self, bytes_code: int) -> RunSettings:
        """The plain form that lanes, torchrun and the packed script take; ``bytes_code`` is the packed code's size."""
        if bytes_code < 0:
            raise ValueError(f"bytes_code must be >= 0, got {bytes_code}")
        parts: dict[str, Any] = {}
        for field in dataclasses.fields(RunSettings):
            section = getattr(self, field.name, None)
            if isinstance(section, sections.Section):
                build: Any = type(field.default)
                parts[field.name] = build(**section.model_dump())
        return RunSettings(**parts, cap_bytes=self.cap_bytes, bytes_code=bytes_code)


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
    low, high = _CODEC_LEVELS[codec]
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


# Lowest and highest level of each codec.
_CODEC_LEVELS = {"zlib": (0, 9), "lzma": (0, 9), "zstd": (1, 22), "brotli": (0, 11)}
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
_BITS = ("bits_attention", "bits_mlp", "bits_embedding", "bits_control", "bits_small")
# Settings of the flat format that the reference format has no meaning for.
_FLAT_ONLY = (
    *("codec", "shuffle", "bits_control", "bits_small", "clip_attention", "clip_mlp", "clip_embedding"),
    *("clip_k_attention", "clip_k_mlp", "clip_k_embedding", "clip_best_of", "group_size", "overrides"),
    *("gptq", "gptq_batches", "gptq_damping", "gptq_reserve_seconds"),
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
)


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """What is known of one setting. ``low`` and ``high`` are None where there is no bound."""

    path: str
    kind: Kind
    nullable: bool
    low: float | None
    high: float | None
    low_open: bool
    high_open: bool
    choices: tuple[str, ...]
    description: str

    @property
    def expects(self) -> str:
        """What a value must be, as the end of the sentence "must be ..."."""
        noun = {"float": "a number", "int": "an integer", "bool": "true or false", "str": "text"}.get(self.kind)
        words = [noun if noun is not None else f"one of {', '.join(self.choices)}"]
        bounds = []
        if self.low is not None:
            bounds.append(f"{'>' if self.low_open else '>='} {_number(self.low)}")
        if self.high is not None:
            bounds.append(f"{'<' if self.high_open else '<='} {_number(self.high)}")
        words.extend([" and ".join(bounds)] if bounds else [])
        return f"{' '.join(words)}{' or null' if self.nullable else ''}"


def field_paths() -> tuple[str, ...]:
    """Every dotted path that an override or a knob may name, in declaration order."""
    return tuple(path for path in _fields() if path not in CHOSEN_AT_START)


@functools.cache
def section_names() -> tuple[str, ...]:
    """Names of the sections, in declaration order."""
    return tuple(dict.fromkeys(path.partition(".")[0] for path in _fields() if "." in path))


def field_info(path: str) -> FieldInfo:
    """What is known of ``path``; raises :class:`ConfigError` with the nearest path where there is no such setting."""
    if path in CHOSEN_AT_START:
        raise ConfigError(f"cannot be varied or overridden; choose the {path} where the run is started", path=path)
    if path in _fields():
        return _fields()[path]
    section = path.partition(".")[0]
    members = [known for known in field_paths() if known.startswith(f"{section}.")]
    if path in section_names():
        raise ConfigError(f"is a section; name one of its settings: {', '.join(members)}", path=path)
    top = [known for known in field_paths() if "." not in known]
    guess = nearest(path, field_paths())
    hint = f"did you mean {guess}?" if guess else f"known: {', '.join(members or [*section_names(), *top])}"
    raise ConfigError(f"unknown setting; {hint}", path=path)


def check_value(path: str, value: Any) -> Any:
    """``value`` as the field at ``path`` holds it (an integer becomes a float where a number is meant).

    Rules between fields are not looked at. Raises :class:`ConfigError` for an unknown path, a wrong type or a value
    out of bounds.
    """
    info = field_info(path)
    try:
        return _adapter(path).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"must be {info.expects}, got {shown(value)}", path=path) from error


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


@functools.cache
def _leaves() -> dict[str, PydanticField]:
    leaves = {}
    for name, field in Config.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, sections.Section):
            leaves.update({f"{name}.{inner}": leaf for inner, leaf in annotation.model_fields.items()})
        else:
            leaves[name] = field
    return leaves


@functools.cache
def _fields() -> dict[str, FieldInfo]:
    return {path: _describe(path, field) for path, field in _leaves().items()}


@functools.cache
def _adapter(path: str) -> TypeAdapter[Any]:
    field = _leaves()[path]
    annotation: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def _describe(path: str, field: PydanticField) -> FieldInfo:
    annotation, constraints = field.annotation, list(field.metadata)
    nullable = get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)
    if nullable:
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Annotated:
        annotation, *extra = get_args(annotation)
        for item in extra:
            constraints.extend(item.metadata if isinstance(item, PydanticField) else [item])
    choices: tuple[str, ...] = get_args(annotation) if get_origin(annotation) is Literal else ()
    kind = "choice" if choices else typing.cast(type, annotation).__name__
    bounds = {
        name: getattr(item, name) for item in constraints for name in ("ge", "gt", "le", "lt") if hasattr(item, name)
    }
    low, high = bounds.get("gt", bounds.get("ge")), bounds.get("lt", bounds.get("le"))
    return FieldInfo(
        path=path,
        kind=typing.cast(Kind, kind),
        nullable=nullable,
        low=low,
        high=high,
        low_open="gt" in bounds,
        high_open="lt" in bounds,
        choices=choices,
        description=field.description or "",
    )
