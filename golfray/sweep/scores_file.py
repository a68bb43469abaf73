"""Scores that did not come from a study: a JSON file of somebody's runs, and the published rows that golfray ships.

docs/evidence.md has the form of the file. Both are one model, so a row is checked like anybody's file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from golfray.config.errors import ConfigError, did_you_mean
from golfray.config.small_file import read_small_file
from golfray.sweep.resolved_diff import flat_configuration
from golfray.sweep.scores import Run, ScoredText, Scores, check_bytes, implied_bytes, mean_bytes_per_token
from golfray.sweep.significance import Noise, Sample, sample_of

_ROWS_NAME = "reference_rows.json"

# Far beyond every score and every count, so that no sum of squares overflows.
_Positive = Annotated[float, Field(gt=0, lt=1e6)]
_Count = Annotated[int, Field(gt=0, lt=2**63)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Run(_Model):
    bpb: _Positive
    val_loss: _Positive | None = None
    seed: int | None = None
    bytes_total: _Count | None = None


class _Summary(_Model):
    n: _Count
    mean: _Positive
    sd: Annotated[float, Field(ge=0, lt=1e6)] | None = None


class _Text(_Model):
    name: str
    digest: str | None = None
    bytes: _Count | None = None
    contaminated: bool | None = None


class _File(_Model):
    """``runs`` or ``summary``; ``best_of``: of how many runs these are the best ones."""

    name: str
    text: _Text
    evaluation: str
    fidelity: dict[str, bool | int | float | str | None]
    tokens: _Count | None = None
    bytes_per_token: _Positive | None = None
    runs: list[_Run] = []
    summary: _Summary | None = None
    best_of: _Count | None = None
    settings: dict[str, Any] | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _has_scores(self) -> _File:
        if bool(self.runs) == (self.summary is not None):
            raise ValueError("either runs, a list with at least one, or summary must be given")
        count = len(self.runs) if self.summary is None else self.summary.n
        if self.best_of is not None and self.best_of < count:
            raise ValueError(f"best_of must be at least the number of runs, {count}, got {self.best_of}")
        return self


def read_scores(path: Path) -> Scores:
    """The scores in a JSON file.

    Raises ``ConfigError`` where it cannot be read or is not of the form, ``ClaimRefused`` where its losses and scores
    imply other bytes than its text has.
    """
    try:
        values = json.loads(read_small_file(path).decode("utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", file=str(path), line=error.lineno, column=error.colno) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}", file=str(path)) from error
    try:
        file = _File.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        message = found["msg"].removeprefix("Value error, ")
        raise ConfigError(message, file=str(path), path=".".join(map(str, found["loc"])) or None) from error
    return _scores(file, "file", file.name)


def reference_ids() -> list[str]:
    """Names of the published rows, the oldest first."""
    return list(_rows()["rows"])


def reference_scores_of(row: str) -> Scores:
    """The published row of that name; raises ``ConfigError`` where there is none."""
    rows = _rows()
    if row not in rows["rows"]:
        raise ConfigError(f"no published row of that name; {did_you_mean(row, rows['rows'])}", file=row)
    values = dict(rows["rows"][row])
    tokenizer = rows["tokenizers"].get(values.pop("tokenizer", None), {})
    text = {"name": rows["text"]["name"], "contaminated": False}
    file = _File.model_validate({"text": text, "fidelity": rows["fidelity"], **tokenizer, **values})
    return _scores(file, "reference", row)


def reference_fidelity() -> dict[str, Any]:
    """The fidelity at which the published rows ran."""
    return dict(_rows()["fidelity"])


def reference_noise() -> Noise:
    """Their seed noise in bits per byte, pooled within configurations."""
    return Noise(**_rows()["noise"])


def published_text() -> ScoredText:
    """The text that they are scored on, with the bounds of its bytes under every tokenizer that counts them rightly."""
    text = _rows()["text"]
    return ScoredText(text["name"], None, text["least_bytes"], text["most_bytes"])


def _scores(file: _File, kind: str, name: str) -> Scores:
    runs = tuple(
        Run(
            f"run {number}" if run.seed is None else f"seed {run.seed}",
            run.seed,
            run.bpb,
            run.val_loss,
            run.bytes_total,
        )
        for number, run in enumerate(file.runs, 1)
    )
    sample = sample_of([run.bpb for run in file.runs]) if file.summary is None else Sample(**file.summary.model_dump())
    text = _text(file.text)
    implied = implied_bytes(name, runs, file.tokens, text)
    per_token = mean_bytes_per_token(runs) or file.bytes_per_token
    if implied is None and file.tokens is not None and per_token is not None:
        implied = file.tokens * per_token
        check_bytes(name, implied, sample.mean, text)
    objections: tuple[str, ...] = ()
    if file.best_of is not None and file.best_of > sample.n:
        objections = (f"{name} has the best {sample.n} of {file.best_of} runs: list all of them",)
    return Scores(
        name=name,
        kind=kind,
        sample=sample,
        runs=runs,
        text=text,
        evaluation=file.evaluation,
        fidelity=file.fidelity,
        bytes_per_token=per_token,
        implied_bytes=implied,
        settings=None if file.settings is None else flat_configuration(file.settings),
        objections=objections,
        repeats={f"{kind} {name}": sample},
        note=_note(file, kind, name),
    )


def _note(file: _File, kind: str, name: str) -> str | None:
    told = [f"{name} is {file.name}"] if kind == "reference" else []
    return "; ".join([*told, *([] if file.note is None else [file.note])]) or None


def _text(text: _Text) -> ScoredText:
    known = published_text()
    if text.name == known.name:
        # Whatever the file says of its bytes: this text has so many under every tokenizer.
        return dataclasses.replace(known, digest=text.digest, contaminated=text.contaminated)
    return ScoredText(text.name, text.digest, text.bytes, text.bytes, text.contaminated)


@functools.cache
def _rows() -> dict[str, Any]:
    text = importlib.resources.files("golfray.sweep").joinpath(_ROWS_NAME).read_text(encoding="utf-8")
    return dict(json.loads(text))
