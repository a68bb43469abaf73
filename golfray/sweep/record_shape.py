"""The fields of event-log records that readers rely on, and their types: a log is a file, and files get damaged.

Nothing is converted: a record is what its line says or it is refused. Fields that are not named here, and records of
types that are not, are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from golfray.sweep.outcome import Kind

# The year 10000: a time behind it is no time of a study, and no calendar has it.
_END_OF_TIME = 253_402_300_800.0


def _inside(folder: str) -> str:
    path = PurePosixPath(folder)
    if path.is_absolute() or ".." in path.parts or "\0" in folder:
        raise ValueError("leads out of the study's folder")
    return folder


def _plain_or_section(value: Any) -> Any:
    values = value.values() if isinstance(value, dict) else [value]
    if not all(item is None or isinstance(item, bool | int | float | str) for item in values):
        raise ValueError("is neither a plain value nor a section of plain values")
    return value


_Time = Annotated[float, Field(ge=0, lt=_END_OF_TIME)]
_Count = Annotated[int, Field(ge=0)]
_Inside = Annotated[str, AfterValidator(_inside)]
_Cap = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Values = dict[str, Any]
_Numbers = dict[str, float]
_Plain = bool | int | float | str | None


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class _Knob(_Shape):
    type: Literal["choice", "int", "float"]
    choices: list[_Plain] = []
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    complement: bool = False
    or_zero: bool = False
    at_most: str | None = None
    preset: _Plain = None
    when: dict[str, list[_Plain]] = {}

    @model_validator(mode="after")
    def _can_be_searched(self) -> _Knob:
        if self.type == "choice":
            return self
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"low < high must hold, got low={self.low!r}, high={self.high!r}")
        if self.log and self.low <= 0 and not self.complement:
            raise ValueError(f"low must be above 0 where log is true, got {self.low!r}")
        # 0.7 - 0.6 is a rounding less than the step 0.1.
        if self.step is not None and not 0 < self.step <= (self.high - self.low) * (1 + 1e-8):
            raise ValueError(f"0 < step <= high - low must hold, got {self.step!r}")
        whole = (self.low, self.high, 1 if self.step is None else self.step)
        if self.type == "int" and not all(float(number).is_integer() for number in whole):
            raise ValueError(f"low, high and step must be integers, got {whole}")
        return self


class _Foreign(_Shape):
    model_config = ConfigDict(extra="forbid")
    records: list[str]
    values: dict[str, _Plain]
    difference: Annotated[float, Field(allow_inf_nan=False)]
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    runs: Annotated[int, Field(ge=1)]


class _Nodes(_Shape):
    mirror: str | None = None
    mirror_gb: _Cap | None = None
    refuse_slower: _Cap | None = None


class _Space(_Shape):
    name: str = ""
    source: str = ""
    fixed: _Values
    implied: _Values
    knobs: dict[str, _Knob]
    first_points: list[_Values] = []
    warm_start: list[_Foreign] = []
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    sampler: str = ""
    stopping: str = ""
    replicates: _Count = 1
    fit_probability: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    limits: dict[str, float | None] = {}
    nodes: _Nodes = _Nodes()


class _Budget(_Shape):
    trials: _Count | None
    minutes: float | None
    gpu_hours: _Cap | None = None
    usd: _Cap | None = None
    confirmations: _Count | None = None
    extra_seeds: _Count | None = None
    instance: str | None = None


class _Holding(_Shape):
    nodes: Annotated[int, Field(ge=1)]
    gpus: _Count


class _Price(_Shape):
    usd_per_hour: _Cap
    source: str


class _Data(_Shape):
    name: str = ""
    folder: str = ""
    reference: dict[str, float | None] | None = None
    warning: str | None = None
    digest: str | None = None
    val_tokens: Annotated[int, Field(ge=1)] | None = None
    val_bytes: Annotated[int, Field(ge=1)] | None = None
    contaminated: bool | None = None


class _Driver(_Shape):
    """What ``study_started`` and ``study_resumed`` may both say."""

    study: str = ""
    preset: str = ""
    scale: str = ""
    workers: Annotated[int, Field(ge=1)] = 1
    slots: _Count = 1
    cap_bytes: _Count = 0
    bytes_code: _Count = 0
    seed: int = 0
    sampler: str = ""
    budget: _Budget = _Budget(trials=None, minutes=None)
    space: _Space = _Space(fixed={}, implied={}, knobs={})
    data: _Data = _Data()
    describe: list[str] = []
    changes: list[str] = []
    host: str | None = None
    golfray_version: str = ""
    generation: _Count = 1
    limits: dict[str, float | None] = {}
    tracking_uri: str | None = None
    simulation: _Values | None = None
    holding: _Holding | None = None
    price: _Price | None = None
    held_since: _Time | None = None


class _LeftSpace(_Shape):
    trial: _Count
    reason: str


class _StudyResumed(_Driver):
    reopened: list[_Count]
    left_space: list[_LeftSpace]


class _Stop(_Shape):
    """Both are said, though one is null: a run would take the default of what is not."""

    steps: _Count | None
    seconds: float | None


class _Settings(_Shape):
    """Sections of plain values, and plain values beside them; which there are is for the study to know."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_plain_or_section)]] = Field(init=False)
    stop: _Stop = _Stop(steps=None, seconds=None)
    bytes_code: _Count = 0


class _TrialAsked(_Shape):
    trial: _Count
    role: str
    params: dict[str, _Plain]
    settings: _Settings | None
    seed: int
    replicate_of: _Count | None
    told: bool
    told_reason: str | None = None
    refused: str | None = None
    foreseen: _Numbers | None = None
    too_large: bool = False
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    promotes: _Count | None = None


class _OfAttempt(_Shape):
    trial: _Count
    attempt: _Count
    job_id: str


class _AttemptSubmitted(_OfAttempt):
    folder: _Inside


class _NodeProbe(_Shape):
    node: str
    host: str
    address: str
    ranks: Annotated[int, Field(ge=1)]
    lane_ranks: Annotated[int, Field(ge=1)]
    device: str
    matmul_tflops: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    reduce_gb_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    read_mb_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    mhz: _Count | None
    max_mhz: _Count | None
    python: str
    torch: str
    cuda: str | None
    nccl: str | None
    driver: str | None
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _AttemptStarted(_OfAttempt):
    lane: str
    nodes: list[_NodeProbe] = []


class _Phase(_OfAttempt):
    phase: str


class _Progress(_OfAttempt):
    step: _Count
    metrics: _Numbers


class _LateCheck(_OfAttempt):
    share: Annotated[float, Field(ge=0, le=1)]
    expected: float
    chance: Annotated[float, Field(ge=0, le=1)]
    bar: float
    known: _Count
    audited: bool
    reason: str


class _Exported(_Shape):
    bytes: _Count
    bits_per_byte: float
    export: dict[str, _Plain]


class _Search(_Shape):
    tried: _Count
    reserve: str
    unquantized: float
    landing: str
    words: str
    export: dict[str, _Plain]
    bits_per_byte: float
    front: list[_Exported]


class _Outcome(_Shape):
    kind: Literal[tuple(kind.value for kind in Kind)]  # type: ignore[valid-type]
    reason: str
    metrics: _Numbers = {}
    phases: _Numbers = {}
    artifact: _Inside | None = None
    artifact_sha256: str | None = None
    fidelity: _Values = {}
    error: str | None = None
    search: _Search | None = None


class _AttemptEnded(_OfAttempt):
    outcome: _Outcome
    final: bool = True
    size_reserve: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _LanesChanged(_Shape):
    slots: Annotated[int, Field(ge=1)]
    holding: _Holding
    news: list[str]


class _StudyEnded(_Shape):
    reason: str
    complete: bool
    hopeless: bool = False


_TIME: TypeAdapter[float] = TypeAdapter(_Time, config=ConfigDict(strict=True))

_SHAPES: Mapping[str, type[_Shape]] = {
    "study_started": _Driver,
    "study_resumed": _StudyResumed,
    "trial_asked": _TrialAsked,
    "attempt_submitted": _AttemptSubmitted,
    "attempt_started": _AttemptStarted,
    "phase": _Phase,
    "progress": _Progress,
    "late_check": _LateCheck,
    "attempt_ended": _AttemptEnded,
    "lanes_changed": _LanesChanged,
    "study_ended": _StudyEnded,
}

# What every reader of a whole log asks a study's first record for.
_BEGINNING = ("study", "preset", "scale", "workers", "slots", "cap_bytes", "budget", "space", "data", "describe")


def why_damaged(record: Mapping[str, Any]) -> str | None:
    """What is wrong with a record by itself: a field that is missing or of the wrong type. None where nothing is."""
    if not isinstance(record.get("event"), str):
        return f"event is {record.get('event')!r}, and it must be a text"
    try:
        _TIME.validate_python(record.get("time"))
    except ValidationError as error:
        return _first("time", error)
    shape = _SHAPES.get(record["event"])
    if shape is None:
        return None
    try:
        shape.model_validate(record)
    except ValidationError as error:
        return _first("", error)
    return None


def why_no_beginning(record: Mapping[str, Any]) -> str | None:
    """What keeps a record from being the first of a log; None where nothing does."""
    if record["event"] != "study_started":
        return f"a log begins with study_started, not with {record['event']}"
    missing = [name for name in _BEGINNING if record.get(name) is None]
    return f"{missing[0]}: Field required" if missing else None


def _first(path: str, error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(part for part in (path, *map(str, found["loc"])) if part)
    return f"{place}: {found['msg']}"
