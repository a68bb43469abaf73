"""The whole configuration: its sections, and what is known of every dotted path."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo as PydanticField
from pydantic_core import PydanticCustomError

from golfray.config import sections
from golfray.config.errors import ConfigError, nearest, shown
from golfray.config.rules import RULES
from golfray.core.settings import RunSettings

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
            bounds.append(f"{'>' if self.low_open else '>='} {bound_text(self.low)}")
        if self.high is not None:
            bounds.append(f"{'<' if self.high_open else '<='} {bound_text(self.high)}")
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


def bound_text(value: float) -> str:
    """A bound as it is written in messages: whole numbers without a point."""
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
