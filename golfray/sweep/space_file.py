"""The space file as a person writes it: its fields, and an error with a position for every mistake.

What a knob's type is, and whether its range makes sense, depends on the preset and the scale: that is seen in
:mod:`golfray.sweep.space`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document, load_yaml

# Words of a person who writes YAML, in place of pydantic's for a reader of its models.
_EXPECTED = {
    "model_type": "a mapping of names to values",
    "dict_type": "a mapping of names to values",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class _Entry(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class KnobEntry(_Entry):
    """One knob: a range or a list of choices for one setting. Its type is that of the setting."""

    low: Any = None
    """Smallest value, in units of the setting."""
    high: Any = None
    """Largest value, included."""
    log: bool = False
    """true: search uniformly in the logarithm; low must be above 0."""
    step: Any = None
    """Distance between neighbouring values; null: 1 for integers, none for numbers. Not together with log."""
    choices: list[Any] | None = None
    """The values themselves, without an order, instead of low and high."""
    complement: bool = False
    """true: search 1 - value, for settings of which the distance from 1 matters, such as a momentum."""
    or_zero: bool = False
    """true: 0 is one more possibility beside the range, for what can be switched off."""
    at_most: str | None = None
    """Path of another knob: the value applied is the smaller of the two."""
    at_preset: Any = None
    """What the preset amounts to where it leaves this setting null; not used where it does not."""


class KnobOverride(KnobEntry):
    """What one scale changes about a knob; fields that are left out stay as they are."""


class Budget(_Entry):
    """When no further trial is asked: at whichever comes first; at least one is set. Running trials end normally."""

    trials: Annotated[int, Field(ge=1)] | None = None
    """Number of trials, the preset included; runs of the preset on further seeds are not counted."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes since the start of the study."""


class SpaceFile(_Entry):
    """A whole space file."""

    name: str
    """Name of the study and of its folder."""
    preset: str
    """Full configuration that everything here lies over."""
    scale: Literal["auto", "full", "laptop"] = "auto"
    """auto: laptop where there is no GPU."""
    workers: int | None = None
    """Ranks that train one trial; null: as the preset has it."""
    budget: Budget
    """How long to search."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the sampler; the trials' own seed is the setting runtime.seed."""
    sampler: Literal["tpe", "random"] = "tpe"
    """How points are chosen."""
    replicates: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of seeds on which trial 0 runs, which measures the noise; 1: the noise stays unknown."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from the preset in every trial, trial 0 included."""
    knobs: dict[str, KnobEntry]
    """Settings that are searched, by dotted path."""
    first_points: list[dict[str, Any]] = Field(default_factory=list)
    """Points to run before the sampler's, as {path: value}; knobs that are left out stay as the preset has them."""
    scales: dict[Literal["full", "laptop"], dict[str, KnobOverride]] = Field(default_factory=dict)
    """Ranges that differ at one scale."""


def read_space_file(path: Path) -> tuple[SpaceFile, Document]:
    """Read and check a space file; raises :class:`ConfigError` with file, line and column for the first mistake."""
    document = load_yaml(path)
    try:
        file = SpaceFile.model_validate(document.values)
    except ValidationError as error:
        raise _located(document, error) from error
    if not _NAME.fullmatch(file.name):
        raise document.error("name", f"must be letters, digits, '.', '_' or '-', got {shown(file.name)}")
    if file.budget.trials is None and file.budget.minutes is None:
        raise document.error("budget", "is empty; give trials, minutes, or both")
    if not file.knobs:
        raise document.error("knobs", "is empty; name at least one setting to search")
    for scale, overrides in file.scales.items():
        for knob in overrides:
            if knob not in file.knobs:
                raise document.error(
                    f"scales.{scale}.{knob}", f"is not a knob of this space; {_hint(knob, file.knobs)}"
                )
    for index, point in enumerate(file.first_points):
        if not point:
            raise document.error(f"first_points.{index}", "is empty; trial 0 is the preset already")
        for knob in point:
            if knob not in file.knobs:
                raise document.error(
                    f"first_points.{index}.{knob}", f"is not a knob of this space; {_hint(knob, file.knobs)}"
                )
    return file, document


def _hint(name: str, known: Any) -> str:
    return did_you_mean(name, known)


def _located(document: Document, error: ValidationError) -> ConfigError:
    # A misspelt name is the reason for the one that is then missing.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    parts = [str(part) for part in first["loc"]]
    if first["type"] == "missing":
        return document.error(".".join(parts), "is missing; a space file needs it")
    # What follows the last part that stands in the file are pydantic's own tags of types.
    while len(parts) > 1 and ".".join(parts) not in document.positions:
        parts.pop()
    path = ".".join(parts)
    if first["type"] == "extra_forbidden":
        return document.error(path, f"is unknown here; {_hint(parts[-1], _fields_beside(parts))}")
    if parts[0] == "scales" and len(parts) == 2:
        return document.error(path, f"is no scale; {_hint(parts[1], ('full', 'laptop'))}")
    message = _EXPECTED.get(first["type"], first["msg"].removeprefix("Input should be "))
    return document.error(path, f"must be {message}, got {shown(first['input'])}")


def _fields_beside(parts: list[str]) -> list[str]:
    if len(parts) == 1:
        return sorted(SpaceFile.model_fields)
    return sorted((Budget if parts[0] == "budget" else KnobEntry).model_fields)
