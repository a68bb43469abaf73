"""A search space at one scale: the configuration it lies over, its knobs, and the points that are run anyway."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document
from golfray.config.resolve import Layer, Resolved, resolve
from golfray.config.schema import check_value, field_info
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, Parameter, parameters_of, values_at
from golfray.sweep.space_file import SpaceFile, read_space_file

_BITS = "export.bits_"
_SCALE_FLOOR = "export.scale_floor"

# As many neighbours as a float64 has integers; beyond that a step is not a number of its own any more.
_MOST_STEPS = 2**53

# These decide what a score means or on which machine it was made: trials that differ in them are never ranked.
_FIDELITY_SECTIONS = ("stop.", "runtime.", "data.")
_FIDELITY_PATHS = ("workers", "cap_bytes", "batch.val_tokens")


@dataclasses.dataclass(frozen=True)
class Space:
    """A space file at one scale.

    ``base`` is the preset with the fixed overrides: the configuration of trial 0. ``implied`` are overrides that
    follow from the knobs and lie over ``base`` in every trial but trial 0 and its replicates, {path: value}.
    ``trials`` and ``minutes`` are the budget, None where it has no such limit.
    """

    name: str
    source: str
    base: Resolved
    knobs: tuple[Knob, ...]
    implied: dict[str, Any]
    first_points: tuple[dict[str, Any], ...]
    trials: int | None
    minutes: float | None
    seed: int
    sampler: str
    replicates: int

    @property
    def parameters(self) -> dict[str, Parameter]:
        """What the sampler searches over, by name, in the order of the knobs."""
        return parameters_of(self.knobs)

    @property
    def fixed(self) -> dict[str, Any]:
        """{path: value} of everything that was laid over the preset before the knobs, in whichever place."""
        return self.base.overrides()

    @property
    def bits_knobs(self) -> list[str]:
        """Paths of the knobs that are bit-widths."""
        return [knob.path for knob in self.knobs if knob.path.startswith(_BITS)]

    def overrides(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """{path: value} of the knobs at a point of the sampler."""
        return values_at(self.knobs, params)

    def searched(self) -> Resolved:
        """What every trial but trial 0 and its replicates lies over: ``base`` with ``implied``."""
        return self.base.with_values(self.implied, "bits vary") if self.implied else self.base

    def at(self, params: Mapping[str, Any]) -> Resolved:
        """The configuration at a point of the sampler; raises :class:`ConfigError` on an impossible combination."""
        return self.searched().with_values(self.overrides(params), "sampler")

    def describe(self) -> list[str]:
        """Lines for a person: the scale and why, what is searched and where, and what follows from it."""
        config = self.base.config
        lines = [f"{config.preset} at scale {config.scale} ({self.base.origins['scale']}), {config.workers} workers"]
        lines += [f"{knob.path}: {knob.describe()}, trial 0 at {knob.preset_value!r}" for knob in self.knobs]
        lines += [
            f"{path} = {value:g} wherever the sampler searches: bits vary" for path, value in self.implied.items()
        ]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, as it stands in ``study_started``."""
        return {
            "name": self.name,
            "source": self.source,
            "sampler": self.sampler,
            "seed": self.seed,
            "replicates": self.replicates,
            "fixed": self.fixed,
            "implied": dict(self.implied),
            "first_points": [dict(point) for point in self.first_points],
            "knobs": {knob.path: _knob_to_dict(knob) for knob in self.knobs},
        }


def load_space(path: Path, *, has_gpu: bool, layers: Sequence[Layer] = ()) -> Space:
    """Read a space file for the scale it names, or for the one that ``auto`` means on this machine.

    ``layers`` (such as ``--set``) lie over the file's fixed overrides and hold for every trial too. Raises
    :class:`ConfigError`, with file, line and column, for whatever is wrong in the file or in the layers.
    """
    file, document = read_space_file(path)
    fixed = Layer.from_document(document, "fixed")
    _refuse_two_places(file, document, fixed, layers)
    own = [Layer(document.source, {"workers": file.workers}, document.positions)] if file.workers is not None else []
    try:
        base = resolve(file.preset, file.scale, [fixed, *own, *layers], has_gpu=has_gpu)
    except ConfigError as error:
        raise document.locate(error) from error
    knobs = tuple(_KnobReader(file, document, base, knob_path).read() for knob_path in file.knobs)
    _check_bounds_between(knobs, document)
    implied = _implied(knobs, [fixed, *layers])
    space = Space(
        name=file.name,
        source=str(path),
        base=base,
        knobs=knobs,
        implied=implied,
        first_points=tuple(_first_point(document, index, point) for index, point in enumerate(file.first_points)),
        trials=file.budget.trials,
        minutes=file.budget.minutes,
        seed=file.seed,
        sampler=file.sampler,
        replicates=file.replicates,
    )
    for index, point in enumerate(space.first_points):
        try:
            space.searched().with_values(point, "first point")
        except ConfigError as error:
            raise document.error(f"first_points.{index}", error.message) from error
    return space


def _first_point(document: Document, index: int, point: Mapping[str, Any]) -> dict[str, Any]:
    checked = {}
    for path, value in point.items():
        try:
            checked[path] = check_value(path, value)
        except ConfigError as error:
            raise document.error(f"first_points.{index}.{path}", error.message) from error
    return checked


class _KnobReader:
    """Reads one knob at one scale; knows where each of its fields was written."""

    def __init__(self, file: SpaceFile, document: Document, base: Resolved, path: str) -> None:
        self._document = document
        self._path = path
        self._scale = base.config.scale
        self._preset = base.config.model_dump()
        override = file.scales.get(base.config.scale, {}).get(path)
        self._changed = override.model_dump(exclude_unset=True) if override is not None else {}
        entry = file.knobs[path].model_dump(exclude_unset=True)
        # A scale that lists choices replaces a range as a whole, and the other way round.
        dropped = {"low", "high", "log", "step"} if "choices" in self._changed else set()
        dropped |= {"choices"} if {"low", "high"} & self._changed.keys() else set()
        self._entry = {key: value for key, value in entry.items() if key not in dropped} | self._changed

    def read(self) -> Knob:
        if self._path.startswith(_FIDELITY_SECTIONS) or self._path in _FIDELITY_PATHS:
            raise self._error(
                None, "decides what a score means, so trials that differ in it cannot be compared; fix it"
            )
        domain = self._choice() if self._given("choices") is not None else self._range()
        complement, or_zero = bool(self._given("complement")), bool(self._given("or_zero"))
        if complement:
            self._check_complement(domain)
        if or_zero:
            if isinstance(domain, Choice) or complement or domain.low <= 0:
                raise self._error("or_zero", "needs a range above 0, without complement: 0 must lie outside it")
            self._check("or_zero", 0)
        return Knob(
            path=self._path,
            domain=domain,
            complement=complement,
            or_zero=or_zero,
            at_most=self._given("at_most"),
            preset_value=self._preset_value(),
        )

    def _check_complement(self, domain: Parameter) -> None:
        if not isinstance(domain, FloatRange) or domain.high > 1 or domain.step is not None:
            raise self._error("complement", "needs a range of numbers up to 1, without step")
        if domain.log and domain.high >= 1:
            raise self._error("high", f"must be below 1 where log and complement are true, got {domain.high}")

    def _range(self) -> FloatRange | IntRange:
        kind = self._info().kind
        if kind not in ("float", "int"):
            raise self._error(None, f"takes {self._info().expects}: list the values to try as choices")
        for end in ("low", "high"):
            if self._given(end) is None:
                raise self._error(None, f"needs {end}; give low and high, or choices")
        low, high, log = self._check("low"), self._check("high"), bool(self._given("log"))
        if not low < high:
            raise self._error("low", f"low < high must hold, got low={low!r}, high={high!r}")
        # 1 - value is what is searched in the logarithm where complement is set; its low end is checked there.
        if log and low <= 0 and not self._given("complement"):
            raise self._error(
                "low", f"must be above 0 where log is true, got {low!r}; or_zero adds 0 to a range above it"
            )
        step = self._step(low, high)
        if kind == "int":
            return IntRange(low, high, log, 1 if step is None else step)
        return FloatRange(low, high, log, step)

    def _step(self, low: float, high: float) -> Any:
        step = self._given("step")
        if step is None:
            return None
        whole = self._info().kind == "int"
        if isinstance(step, bool) or not isinstance(step, int if whole else int | float) or not 0 < step < math.inf:
            raise self._error("step", f"must be {'an integer' if whole else 'a number'} above 0, got {shown(step)}")
        if self._given("log"):
            raise self._error("step", "cannot go with log: steps would not be equal there")
        count = (high - low) / step
        if count > _MOST_STEPS:
            raise self._error("step", f"is too small to tell the numbers from {low:g} to {high:g} apart, got {step}")
        if abs(count - round(count)) > 1e-8 or round(count) < 1:
            raise self._error("step", f"must divide high - low = {high - low:g}, got {step}")
        return step if whole else float(step)

    def _choice(self) -> Choice:
        for field in ("low", "high", "step", "log", "complement", "or_zero"):
            if self._given(field):
                raise self._error(field, "cannot go with choices, which name every value")
        values = self._given("choices")
        checked = [self._check(f"choices.{index}", value) for index, value in enumerate(values)]
        if len(checked) < 2 or any(value in checked[:index] for index, value in enumerate(checked)):
            raise self._error("choices", f"must be at least two different values, got {shown(values)}")
        return Choice(tuple(checked))

    def _preset_value(self) -> Any:
        section, _, name = self._path.rpartition(".")
        value = self._preset[section][name] if section else self._preset[name]
        if value is not None or None in (self._given("choices") or []):
            return value
        if self._given("at_preset") is None:
            raise self._error(
                None, f"is null in the preset at scale {self._scale}; say with at_preset which value that amounts to"
            )
        return self._check("at_preset")

    def _info(self) -> Any:
        try:
            return field_info(self._path)
        except ConfigError as error:
            raise self._document.error(f"knobs.{self._path}", error.message) from error

    def _check(self, field: str, *value: Any) -> Any:
        self._info()
        try:
            return check_value(self._path, value[0] if value else self._given(field))
        except ConfigError as error:
            raise self._error(field, error.message) from error

    def _given(self, field: str) -> Any:
        return self._entry.get(field)

    def _error(self, field: str | None, message: str) -> ConfigError:
        home = f"knobs.{self._path}"
        if field is not None and field.partition(".")[0] in self._changed:
            home = f"scales.{self._scale}.{self._path}"
        return self._document.error(home if field is None else f"{home}.{field}", message)


def _refuse_two_places(file: SpaceFile, document: Document, fixed: Layer, layers: Sequence[Layer]) -> None:
    """A setting is a knob, or fixed, or chosen by ``workers:``, and never two of these."""
    for layer in (fixed, *layers):
        for path in layer.flat():
            if path in file.knobs:
                raise layer.error(path, f"is a knob of {document.source}; remove it there or here")
    if file.workers is not None and "workers" in fixed.flat():
        raise fixed.error("workers", "is given twice: as workers of the space as well; remove one")


def _check_bounds_between(knobs: Sequence[Knob], document: Document) -> None:
    by_path = {knob.path: knob for knob in knobs}
    for knob in knobs:
        if knob.at_most is None:
            continue
        where = f"knobs.{knob.path}.at_most"
        other = by_path.get(knob.at_most)
        if other is None or other is knob:
            others = [path for path in by_path if path != knob.path]
            raise document.error(where, f"must name another knob of this space; {did_you_mean(knob.at_most, others)}")
        if other.at_most is not None:
            raise document.error(where, f"{other.path} is bounded by at_most itself; name the knob that bounds both")
        if isinstance(knob.domain, Choice) or isinstance(other.domain, Choice):
            raise document.error(where, "needs two ranges of numbers")
        if type(knob.domain) is not type(other.domain):
            raise document.error(where, f"{knob.path} and {other.path} must both be integers or both be numbers")


def _implied(knobs: Sequence[Knob], layers: Sequence[Layer]) -> dict[str, Any]:
    """Where bits vary the quantization step has no floor: with one, int8 can come out smaller than int7."""
    if not any(knob.path.startswith(_BITS) for knob in knobs):
        return {}
    if any(knob.path == _SCALE_FLOOR for knob in knobs):
        raise ConfigError("cannot be a knob where bits vary: they need it to be 0", path=_SCALE_FLOOR)
    for layer in layers:
        if layer.flat().get(_SCALE_FLOOR, 0.0) != 0.0:
            raise layer.error(_SCALE_FLOOR, "must be 0 where bits vary, or fewer bits could be more bytes; remove it")
    return {_SCALE_FLOOR: 0.0}


def _knob_to_dict(knob: Knob) -> dict[str, Any]:
    kind = {FloatRange: "float", IntRange: "int", Choice: "choice"}[type(knob.domain)]
    plain = {"type": kind, **dataclasses.asdict(knob.domain)}
    plain |= {"complement": knob.complement, "or_zero": knob.or_zero, "at_most": knob.at_most}
    return plain | {"preset": knob.preset_value}
