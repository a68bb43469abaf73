"""The space file as a person writes it: its fields, and an error with a position for every mistake.

What a knob's type is, and whether its range makes sense, depends on the setting and the scale: that is seen in
:mod:`golfray.sweep.knob_reader`. A file may extend another one: see :mod:`golfray.sweep.extends`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document
from golfray.config.schema import bound_text, field_info
from golfray.config.sections import LONGEST_S, Seconds
from golfray.sweep.budget import StudyBudget
from golfray.sweep.extends import load_extended
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.node_rules import NodeRules

# Words of a person who writes YAML, in place of pydantic's for a reader of its models.
_EXPECTED = {
    "model_type": "a mapping of names to values",
    "dict_type": "a mapping of names to values",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
}
_BOUNDS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
_ORDER = {"extra_forbidden": 0, "missing": 2}
_SIGNS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}

# One seed in twenty of a point that counts as fitting is too large.
DEFAULT_FIT_PROBABILITY = 0.95

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]*"


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
    when: dict[str, Any] | None = None
    """{path of another knob: a value or a list of values}: searched only where all hold, else as the preset has it."""


class KnobOverride(KnobEntry):
    """What one scale changes about a knob; fields that are left out stay as they are."""


class Budget(_Entry):
    """When no further trial starts: at whichever comes first; at least one is set. Running trials end normally."""

    trials: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Number of trials, the preset included; runs of the preset on further seeds are not counted."""
    minutes: Annotated[float, Field(gt=0, le=LONGEST_S / 60)] | None = None
    """Minutes since the start of the study."""
    gpu_hours: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = None
    """Most GPU-hours that may be booked: of all GPUs of the nodes that are held, busy or not (docs/budget.md)."""
    usd: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = None
    """Most USD that may be booked: node-hours held, at the price of the instance or --usd-per-hour (docs/budget.md)."""
    confirmations: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of `golfray confirm` runs for which gpu_hours and usd are kept back from the search; null: none."""
    extra_seeds: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Most runs on further seeds, once the trials are spent, for what noise does not set apart from the best."""
    instance: str | None = None
    """Instance type of each node, which has its price in clusters/prices.yaml; null: --usd-per-hour may say it."""


class Limits(_Entry):
    """Seconds that an attempt may be in each phase before it counts as hung; what is left out is as it is below."""

    start: Seconds = PhaseLimits.start
    """From submission to the ranks of a free lane having taken the job."""
    data: Seconds = PhaseLimits.data
    """Opening the shards."""
    compile: Seconds = PhaseLimits.compile
    """Building and compiling the model, and the steps before the clock starts."""
    train: Seconds | None = PhaseLimits.train
    """Training; null: twice the run's own time and two minutes more, none where a number of steps ends it."""
    progress: Seconds = PhaseLimits.progress
    """Longest silence while training, where a run reports runtime.log_points times."""
    # `validate` is a name of pydantic's own.
    validate_: Seconds = Field(default=PhaseLimits.validate, alias="validate")
    """Validation of the trained model."""
    calibrate: Seconds = PhaseLimits.calibrate
    """Learning from training tokens what the export needs."""
    search: Seconds = PhaseLimits.search
    """Searching the export of the trained model."""
    export: Seconds = PhaseLimits.export
    """Quantizing, packing and compressing."""
    score: Seconds = PhaseLimits.score
    """Reloading the artifact and scoring it."""
    sliding: Seconds | None = PhaseLimits.sliding
    """Sliding windows; null: twice evaluation.sliding_seconds and two minutes more, none where those are null."""


class Nodes(_Entry):
    """What is asked of the nodes of a cluster, and kept on them (docs/nodes.md)."""

    mirror: str | None = None
    """Folder on each node's own disk to copy the data to, once a node; null: read where the driver reads them."""
    mirror_gb: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """GB that all mirrors in that folder may take together on a node; needed where there is one."""
    refuse_slower: Annotated[float, Field(gt=1, le=1000)] | None = None
    """A node is refused that computes so many times slower than the others, as 1.2; null: it is only told."""


class SpaceFile(_Entry):
    """A whole space file."""

    extends: str | None = None
    """Another space file, relative to this one's folder; what is written here lies over it."""
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
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """How points are chosen; gp: by TPE for 30 trials, then by a Gaussian process."""
    stopping: Literal["off", "late_check", "rungs"] = "off"
    """late_check: what will not be the best is stopped late in its run; rungs: short runs first (docs/stopping.md)."""
    fit_probability: Annotated[float, Field(ge=0.5, lt=1)] = DEFAULT_FIT_PROBABILITY
    """Probability with which another seed of a point must fit under the cap for the sampler to count it as fitting."""
    replicates: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of seeds on which trial 0 runs, which measures the noise; 1: the noise stays unknown."""
    fixed: dict[str, Any] = Field(default_factory=dict)
    """Settings that differ from the preset in every trial, trial 0 included."""
    knobs: dict[str, KnobEntry]
    """Settings that are searched, by dotted path."""
    first_points: list[dict[str, Any]] = Field(default_factory=list)
    """Points to run before the sampler's, as {path: value}; knobs that are left out stay as the preset has them."""
    warm_start: str | None = None
    """File of foreign observations, relative to this one's folder, of which the sampler is told; null: none."""
    scales: dict[Literal["full", "laptop"], dict[str, KnobOverride]] = Field(default_factory=dict)
    """Ranges that differ at one scale."""
    limits: Limits = Field(default_factory=Limits)
    """How long an attempt may be in each phase before it counts as hung, in seconds."""
    nodes: Nodes = Field(default_factory=Nodes)
    """What is asked of the nodes of a cluster, and kept on them."""

    def phase_limits(self) -> PhaseLimits:
        """The limits as the executor takes them."""
        return PhaseLimits(**self.limits.model_dump(by_alias=True))

    def node_rules(self) -> NodeRules:
        """What the executor asks of nodes."""
        return NodeRules(**self.nodes.model_dump())

    def study_budget(self) -> StudyBudget:
        """The budget as the study takes it."""
        return StudyBudget(**self.budget.model_dump())


def read_space_file(path: Path) -> tuple[SpaceFile, Document]:
    """Read and check a space file, laid over the one that it extends.

    The document has the position of every value in the file where it stands. Raises :class:`ConfigError` with file,
    line and column for the first mistake.
    """
    document = load_extended(path)
    try:
        file = SpaceFile.model_validate(document.values)
    except ValidationError as error:
        raise _located(document, error) from error
    if not re.fullmatch(NAME_PATTERN, file.name):
        raise document.error("name", f"must be letters, digits, '.', '_' or '-', got {shown(file.name)}")
    _check_budget(file, document)
    _check_nodes(file.nodes, document)
    if not file.knobs:
        raise document.error("knobs", "is empty; name at least one setting to search")
    for scale, overrides in file.scales.items():
        for knob in overrides:
            if knob not in file.knobs:
                raise document.error(
                    f"scales.{scale}.{knob}", f"is not a knob of this space; {did_you_mean(knob, file.knobs)}"
                )
    for index, point in enumerate(file.first_points):
        if not point:
            raise document.error(f"first_points.{index}", "is empty; trial 0 is the preset already")
        for knob in point:
            if knob not in file.knobs:
                raise document.error(
                    f"first_points.{index}.{knob}", f"is not a knob of this space; {did_you_mean(knob, file.knobs)}"
                )
    return file, document


def _check_budget(file: SpaceFile, document: Document) -> None:
    budget = file.budget
    if all(limit is None for limit in (budget.trials, budget.minutes, budget.gpu_hours, budget.usd)):
        raise document.error("budget", "limits nothing; give one or more of trials, minutes, gpu_hours, usd")
    if budget.confirmations is not None and budget.gpu_hours is None and budget.usd is None:
        raise document.error("budget.confirmations", "keeps back gpu_hours and usd; give one of them, or remove it")
    if budget.extra_seeds is not None and budget.trials is None:
        raise document.error("budget.extra_seeds", "come once the trials are spent; give budget.trials, or remove it")
    if budget.extra_seeds is not None and file.replicates == 1:
        raise document.error(
            "budget.extra_seeds",
            "are for what the noise does not set apart; give replicates of 2 or more, or remove it",
        )


def _check_nodes(nodes: Nodes, document: Document) -> None:
    if nodes.mirror is not None and not nodes.mirror.startswith("/"):
        raise document.error("nodes.mirror", f"must be a folder from the root, got {shown(nodes.mirror)}")
    if (nodes.mirror is None) != (nodes.mirror_gb is None):
        given, missing = ("mirror", "mirror_gb") if nodes.mirror_gb is None else ("mirror_gb", "mirror")
        raise document.error(f"nodes.{given}", f"means something with nodes.{missing} only; give both, or remove it")


def _located(document: Document, error: ValidationError) -> ConfigError:
    # A misspelt name is the reason for the one that is then missing, and what is missing has no line to show.
    first = min(error.errors(), key=lambda found: _ORDER.get(found["type"], 1))
    parts = [str(part) for part in first["loc"]]
    if first["type"] == "missing":
        return document.error(".".join(parts), "is missing; a space file needs it")
    # What follows the last part that stands in the file are pydantic's own tags of types.
    while len(parts) > 1 and ".".join(parts) not in document.positions:
        parts.pop()
    path = ".".join(parts)
    if first["type"] == "extra_forbidden":
        _refuse_misspelt_knob(document, parts)
        return document.error(path, f"is unknown here; {did_you_mean(parts[-1], _fields_beside(parts))}")
    if parts[0] == "scales" and len(parts) == 2 and first["type"] == "literal_error":
        return document.error(path, f"is no scale; {did_you_mean(parts[1], ('full', 'laptop'))}")
    return document.error(path, f"must be {_expected(first)}, got {shown(first['input'])}")


def _refuse_misspelt_knob(document: Document, parts: list[str]) -> None:
    """A field that no knob has may as well be a setting of a section that was taken for a knob."""
    if parts[0] == "knobs" and len(parts) > 2:
        try:
            field_info(parts[1])
        except ConfigError as error:
            raise document.error(f"knobs.{parts[1]}", error.message) from error


def _expected(found: ErrorDetails) -> str:
    context = found.get("ctx", {})
    if found["type"] in _BOUNDS:
        bound = _BOUNDS[found["type"]]
        return f"{_SIGNS[bound]} {bound_text(context[bound])}"
    if found["type"] == "literal_error":
        words = re.findall("'([^']*)'", context["expected"])
        return f"one of {', '.join(words)}"
    return _EXPECTED.get(found["type"], found["msg"].removeprefix("Input should be "))


def _fields_beside(parts: list[str]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {"budget": Budget, "limits": Limits, "nodes": Nodes}
    return field_names(SpaceFile if len(parts) == 1 else sections.get(parts[0], KnobEntry))


def field_names(model: type[BaseModel]) -> list[str]:
    """Names of a model's fields as they are written in a file."""
    return sorted(field.alias or name for name, field in model.model_fields.items())
