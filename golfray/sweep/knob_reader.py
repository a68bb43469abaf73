"""The knobs of a space file at one scale: what is written there, checked against what each setting can be."""

from __future__ import annotations

import math
from typing import Any

from golfray.config.errors import ConfigError, did_you_mean, shown
from golfray.config.positions import Document
from golfray.config.resolve import Resolved
from golfray.config.schema import FieldInfo, Scale, check_value, field_info
from golfray.sweep.extends import changed_entry
from golfray.sweep.first_points import read_first_points
from golfray.sweep.knobs import (
    Choice,
    CircularConditions,
    Condition,
    FloatRange,
    IntRange,
    Knob,
    Parameter,
    dependency_order,
)
from golfray.sweep.space_file import SpaceFile

# As many neighbours as a float64 has integers; beyond that a step is not a number of its own any more.
_MOST_STEPS = 2**53

# These decide what a score means or on which machine it was made: trials that differ in them are never ranked.
_FIDELITY_SECTIONS = ("stop.", "runtime.", "data.", "evaluation.")
_FIDELITY_PATHS = ("workers", "cap_bytes", "batch.val_tokens")

# These decide which code ships and in which form. Its size is one number of a study.
_CODE_PATHS = ("averaging.method", "export.format", "ship.source")


def read_knobs(file: SpaceFile, document: Document, preset: Resolved) -> tuple[Knob, ...]:
    """All knobs at the scale of ``preset``, which is the preset with nothing over it; in the order of the file.

    Raises :class:`ConfigError`, placed in ``document``, for what cannot be searched.
    """
    readers = [KnobReader(file, document, preset, path) for path in file.knobs]
    knobs = tuple(reader.read() for reader in readers)
    by_path = {knob.path: knob for knob in knobs}
    for reader, knob in zip(readers, knobs, strict=True):
        reader.check_bound(knob, by_path)
        reader.check_conditions(knob, by_path)
    try:
        dependency_order(knobs)
    except CircularConditions as error:
        raise KnobReader(file, document, preset, error.paths[0]).error("when", f"is a circle: {error}") from error
    return knobs


def check_other_scale(file: SpaceFile, document: Document, preset: Resolved) -> None:
    """Refuse ranges and first points that are wrong at the scale of ``preset``, where the file may not be used now.

    Under ``scale: auto`` another machine will use them, so there they must be complete as well. Raises
    :class:`ConfigError`.
    """
    if file.scale == "auto":
        read_first_points(file, document, read_knobs(file, document, preset), preset.config.scale)
        return
    for path in file.knobs:
        reader = KnobReader(file, document, preset, path)
        if reader.is_complete:
            reader.domain()


class KnobReader:
    """Reads one knob at one scale; knows where each of its fields was written."""

    def __init__(self, file: SpaceFile, document: Document, preset: Resolved, path: str) -> None:
        self._file = file
        self._document = document
        self._path = path
        self._preset = preset
        self._scale = preset.config.scale
        override = file.scales.get(self._scale, {}).get(path)
        self._changed = override.model_dump(exclude_unset=True) if override is not None else {}
        self._entry = changed_entry(file.knobs[path].model_dump(exclude_unset=True), self._changed)

    @property
    def is_complete(self) -> bool:
        """Whether a range or choices are given at this scale."""
        return self._given("choices") is not None or (
            self._given("low") is not None and self._given("high") is not None
        )

    def read(self) -> Knob:
        """The knob; what it says of other knobs is not checked yet."""
        return Knob(
            path=self._path,
            domain=self.domain(),
            complement=bool(self._given("complement")),
            or_zero=bool(self._given("or_zero")),
            at_most=self._given("at_most"),
            preset_value=self._preset_value(),
            when=self._conditions(),
        )

    def domain(self) -> Parameter:
        """The range or the choices, checked against what the setting can be, and against themselves."""
        why_not = why_not_searched(self._path)
        if why_not is not None:
            raise self.error(None, why_not)
        domain = self._choice() if self._given("choices") is not None else self._range()
        complement, or_zero = bool(self._given("complement")), bool(self._given("or_zero"))
        if complement:
            self._check_complement(domain)
        if or_zero:
            if isinstance(domain, Choice) or complement or domain.low <= 0:
                raise self.error("or_zero", "needs a range above 0, without complement: 0 must lie outside it")
            self._check("or_zero", 0)
        return domain

    def check_bound(self, knob: Knob, knobs: dict[str, Knob]) -> None:
        """What ``at_most`` may name."""
        if knob.at_most is None:
            return
        other = knobs.get(knob.at_most)
        if other is None or other is knob:
            raise self.error("at_most", self._must_name_another(knob.at_most))
        if other.at_most is not None:
            raise self.error("at_most", f"{other.path} is bounded by at_most itself; name the knob that bounds both")
        if isinstance(knob.domain, Choice) or isinstance(other.domain, Choice):
            raise self.error("at_most", "needs two ranges of numbers")
        if type(knob.domain) is not type(other.domain):
            raise self.error("at_most", f"{knob.path} and {other.path} must both be integers or both be numbers")

    def check_conditions(self, knob: Knob, knobs: dict[str, Knob]) -> None:
        """What ``when`` may name: values that another knob can have."""
        for condition in knob.when:
            other = knobs[condition.path]
            where = f"when.{other.path}"
            if other.at_most is not None:
                raise self.error(where, "has at_most, so its value is not its own; name another knob")
            for value in condition.values:
                if not other.can_be(value):
                    single = "" if other.is_countable else "; of a range of numbers no single value can be named"
                    raise self.error(where, f"is never {shown(value)}: it is searched over {other.describe()}{single}")

    def error(self, field: str | None, message: str) -> ConfigError:
        """The error to raise about one of the knob's fields (None: the knob), in the place where that was written."""
        return self._document.error(knob_place(self._file, self._scale, self._path, field), message)

    def _conditions(self) -> tuple[Condition, ...]:
        written = self._given("when")
        if written is None:
            return ()
        if not written:
            raise self.error("when", "is empty; name another knob and its values, or remove it")
        return tuple(self._condition(path, value) for path, value in written.items())

    def _condition(self, path: str, written: Any) -> Condition:
        where = f"when.{path}"
        if path == self._path or path not in self._file.knobs:
            raise self.error(where, self._must_name_another(path))
        values = written if isinstance(written, list) else [written]
        if not values:
            raise self.error(where, "is empty; give the values at which this knob is searched")
        return Condition(path, tuple(self._check_other(path, where, value) for value in values))

    def _check_other(self, path: str, where: str, value: Any) -> Any:
        try:
            return check_value(path, value)
        except ConfigError as error:
            raise self.error(where, error.message) from error

    def _must_name_another(self, name: str) -> str:
        others = [path for path in self._file.knobs if path != self._path]
        if not others:
            return "must name another knob of this space, and there is none"
        return f"must name another knob of this space; {did_you_mean(name, others)}"

    def _check_complement(self, domain: Parameter) -> None:
        if not isinstance(domain, FloatRange) or domain.high > 1 or domain.step is not None:
            raise self.error("complement", "needs a range of numbers up to 1, without step")
        if domain.log and domain.high >= 1:
            raise self.error("high", f"must be below 1 where log and complement are true, got {domain.high}")

    def _range(self) -> FloatRange | IntRange:
        info = self._info()
        if info.kind not in ("float", "int"):
            raise self.error(None, f"takes {info.expects}: list the values to try as choices")
        for end in ("low", "high"):
            if self._given(end) is None:
                raise self.error(None, f"needs {end}; give low and high, or choices")
        low, high, log = self._check("low"), self._check("high"), bool(self._given("log"))
        if not low < high:
            raise self._crossed(low, high)
        # 1 - value is what is searched in the logarithm where complement is set; its low end is checked there.
        if log and low <= 0 and not self._given("complement"):
            raise self.error(
                "low", f"must be above 0 where log is true, got {low!r}; or_zero adds 0 to a range above it"
            )
        step = self._step(low, high)
        if info.kind == "int":
            return IntRange(low, high, log, 1 if step is None else step)
        return FloatRange(low, high, log, step)

    def _crossed(self, low: float, high: float) -> ConfigError:
        """The end that was changed, for this scale or by a child, is the one to mend; of two together, the second."""
        if self._standing("low") > self._standing("high"):
            return self.error("low", f"must be < high ({high!r}), got {low!r}")
        return self.error("high", f"must be > low ({low!r}), got {high!r}")

    def _standing(self, field: str) -> tuple[bool, bool]:
        """Whether a field is this scale's own, and whether it is the child's own: larger where it was written later."""
        position = self._document.position(knob_place(self._file, self._scale, self._path, field))
        return field in self._changed, position is not None and position.source == self._document.source

    def _step(self, low: float, high: float) -> Any:
        step = self._given("step")
        if step is None:
            return None
        whole = self._info().kind == "int"
        if isinstance(step, bool) or not isinstance(step, int if whole else int | float) or not 0 < step < math.inf:
            raise self.error("step", f"must be {'an integer' if whole else 'a number'} above 0, got {shown(step)}")
        if self._given("log"):
            raise self.error("step", "cannot go with log: steps would not be equal there")
        count = (high - low) / step
        if count > _MOST_STEPS:
            raise self.error("step", f"is too small to tell the numbers from {low:g} to {high:g} apart, got {step}")
        if abs(count - round(count)) > 1e-8 or round(count) < 1:
            raise self.error("step", f"must divide high - low = {high - low:g}, got {step}")
        return step if whole else float(step)

    def _choice(self) -> Choice:
        for field in ("low", "high", "step", "log", "complement", "or_zero"):
            given = self._given(field)
            if given is not None and given is not False:
                raise self.error(field, "cannot go with choices, which name every value")
        values = self._given("choices")
        checked = [self._check(f"choices.{index}", value) for index, value in enumerate(values)]
        for index, value in enumerate(checked):
            if value in checked[:index]:
                raise self.error(f"choices.{index}", f"names {shown(value)} a second time")
        if len(checked) < 2:
            raise self.error("choices", f"must be at least two values, got {shown(values)}; fix the setting instead")
        return Choice(tuple(checked))

    def _preset_value(self) -> Any:
        value = self._preset.config.value(self._path)
        if value is not None or None in (self._given("choices") or []):
            return value
        if self._given("at_preset") is None:
            raise self.error(
                None, f"is null in the preset at scale {self._scale}; say with at_preset which value that amounts to"
            )
        return self._check("at_preset")

    def _info(self) -> FieldInfo:
        try:
            return field_info(self._path)
        except ConfigError as error:
            raise self._document.error(f"knobs.{self._path}", error.message) from error

    def _check(self, field: str, *value: Any) -> Any:
        self._info()
        try:
            return check_value(self._path, value[0] if value else self._given(field))
        except ConfigError as error:
            raise self.error(field, error.message) from error

    def _given(self, field: str) -> Any:
        return self._entry.get(field)


def why_not_searched(path: str) -> str | None:
    """Why a setting can be no knob; None where it can."""
    if path.startswith(_FIDELITY_SECTIONS) or path in _FIDELITY_PATHS:
        return "decides what a score means, so trials that differ in it cannot be compared; fix it"
    if path in _CODE_PATHS:
        return "decides which code ships, whose size is one number of a study; fix it"
    if path == "export.search":
        return "decides whether trials have the export of their point or the best of a search; fix it"
    if path == "model.vocab_size":
        return "belongs to the tokenizer, which is the same in every trial; fix it"
    return None


def knob_place(file: SpaceFile, scale: Scale, path: str, field: str | None) -> str:
    """Path in the document of one of a knob's fields (None: the knob), in the place that counts at this scale."""
    override = file.scales.get(scale, {}).get(path)
    changed = override is not None and field is not None and field.partition(".")[0] in override.model_fields_set
    home = f"scales.{scale}.{path}" if changed else f"knobs.{path}"
    return home if field is None else f"{home}.{field}"


def places_of(file: SpaceFile, document: Document, scale: Scale) -> dict[str, tuple[str, ...]]:
    """{path of a knob: "file:line" of its entry and of what the scale changes about it}."""
    homes = {path: [f"knobs.{path}"] for path in file.knobs}
    for path in file.scales.get(scale, {}):
        homes[path].append(f"scales.{scale}.{path}")
    return {path: tuple(str(document.positions[home]) for home in own) for path, own in homes.items()}


def overruled(file: SpaceFile, document: Document, scale: Scale) -> list[str]:
    """A line for everything that a file says of a knob and that the file it extends says otherwise for this scale."""
    lines = []
    for path, override in file.scales.get(scale, {}).items():
        for field in sorted(override.model_fields_set):
            own, other = (document.positions.get(f"{home}.{path}.{field}") for home in ("knobs", f"scales.{scale}"))
            if own is not None and other is not None and own.source == document.source != other.source:
                lines.append(
                    f"{own}: {field} of {path} has no effect at scale {scale}: {other} gives another one for it"
                )
    return lines
