"""Observations of others: what a public record ran with, and what it scored. No trial of ours, never ranked with ours.

``golfray import-records`` writes them into a file, ``warm_start:`` of a space file names it, and
:mod:`golfray.sweep.warm_start` makes of them what a sampler may be told. docs/warm_start.md has the form of the file.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from golfray.config.errors import ConfigError
from golfray.config.schema import check_value
from golfray.config.small_file import read_small_file

SCHEMA = "golfray-observations/1"

_PUBLISHED = "published_records.json"


@dataclasses.dataclass(frozen=True)
class Observation:
    """One configuration that somebody else ran. ``bpb`` is the mean of ``runs`` runs, in bits per byte.

    ``settings`` are {dotted path: value} as far as they are known; a path that is missing is not known.
    ``beyond`` names what sets it apart and no setting says: another evaluation, a script of its own. ``bytes_total``
    is the largest of its runs' sizes, None where nobody says it.
    """

    id: str
    name: str
    bpb: float
    runs: int
    bytes_total: int | None
    settings: dict[str, Any]
    beyond: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Observations:
    """Observations from one ``source``. ``stock_bpb`` is what the preset itself scored there, over ``stock_runs``."""

    source: str
    stock_bpb: float
    stock_runs: int
    records: tuple[Observation, ...]


_Score = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Runs = Annotated[int, Field(ge=1)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Stock(_Model):
    bpb: _Score
    runs: _Runs


class _Record(_Model):
    id: str
    name: str
    bpb: _Score
    runs: _Runs
    bytes_total: Annotated[int, Field(gt=0)] | None = None
    settings: dict[str, Any]
    beyond: list[str] = []


class _File(_Model):
    """``base``: settings of every observation that does not say otherwise; null says that one is not known."""

    schema_: Literal["golfray-observations/1"] = Field(alias="schema")
    source: str
    stock: _Stock
    base: dict[str, Any] = {}
    observations: list[_Record]


def published_observations() -> Observations:
    """The public records as golfray ships them, each setting as the record's own code and logs resolve it."""
    file = importlib.resources.files("golfray.sweep").joinpath(_PUBLISHED)
    return _parse(file.read_bytes(), _PUBLISHED)


def read_observations(path: Path) -> Observations:
    """The observations in a file. Raises ``ConfigError`` where it cannot be read or is not of the form."""
    return _parse(read_small_file(path), str(path))


def observations_text(observations: Observations) -> str:
    """The file of observations, one a line, every setting beside each."""
    head = {
        "schema": SCHEMA,
        "source": observations.source,
        "stock": {"bpb": observations.stock_bpb, "runs": observations.stock_runs},
    }
    lines = [json.dumps(dataclasses.asdict(record), ensure_ascii=False) for record in observations.records]
    body = ",\n".join(f"    {line}" for line in lines)
    start = json.dumps(head, ensure_ascii=False, indent=2).removesuffix("\n}")
    return f'{start},\n  "observations": [\n{body}\n  ]\n}}\n'


def write_observations(path: Path, observations: Observations) -> None:
    """Write the file, whole or not at all. Raises ``ConfigError`` where another kind of file has its name."""
    if path.exists():
        try:
            read_observations(path)
        except ConfigError as error:
            raise ConfigError("is there and holds no observations; name another file", file=str(path)) from error
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(observations_text(observations), encoding="utf-8")
    os.replace(unfinished, path)


def _parse(content: bytes, source: str) -> Observations:
    try:
        values = json.loads(content)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", file=source, line=error.lineno, column=error.colno) from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(f"is not JSON: {error}", file=source) from error
    try:
        file = _File.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        raise ConfigError(found["msg"], file=source, path=".".join(map(str, found["loc"])) or None) from error
    records = tuple(_observation(record, file.base, source) for record in file.observations)
    _refuse_doubles(records, source)
    return Observations(file.source, file.stock.bpb, file.stock.runs, records)


def _observation(record: _Record, base: Mapping[str, Any], source: str) -> Observation:
    settings = {}
    for path, value in {**base, **record.settings}.items():
        if value is None:
            continue
        try:
            settings[path] = check_value(path, value)
        except ConfigError as error:
            raise ConfigError(f"settings of {record.id}: {error.message}", file=source, path=path) from error
    beyond = tuple(record.beyond)
    return Observation(record.id, record.name, record.bpb, record.runs, record.bytes_total, settings, beyond)


def _refuse_doubles(records: Sequence[Observation], source: str) -> None:
    seen: set[str] = set()
    for record in records:
        if record.id in seen:
            raise ConfigError(f"has two observations called {record.id}", file=source)
        seen.add(record.id)
