"""A search space at one scale: the configuration it lies over, its knobs, and the points that are run anyway."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from golfray.config.errors import ConfigError
from golfray.config.positions import Document
from golfray.config.resolve import HasGpu, Layer, Resolved, choose_scale, resolve
from golfray.config.schema import Scale
from golfray.config.sections import LARGEST_SEED
from golfray.sweep.budget import StudyBudget
from golfray.sweep.first_points import read_first_points
from golfray.sweep.knob_reader import check_other_scale, knob_place, overruled, places_of, read_knobs
from golfray.sweep.knobs import Choice, FloatRange, IntRange, Knob, Parameter, parameters_of, values_at
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.node_rules import NodeRules
from golfray.sweep.observation import read_observations
from golfray.sweep.possible import impossible_values
from golfray.sweep.rungs import SHARES, shortened
from golfray.sweep.space_file import SpaceFile, read_space_file
from golfray.sweep.stopping import RUNGS
from golfray.sweep.warm_start import ForeignPoint, WarmStart, warm_start

_BITS = "export.bits_"
_SCALE_FLOOR = "export.scale_floor"
_SEED = "runtime.seed"


@dataclasses.dataclass(frozen=True)
class Space:
    """A space file at one scale.

    ``base`` is the preset with the fixed overrides: the configuration of trial 0. ``implied`` are overrides that
    follow from the knobs and lie over ``base`` in every trial but trial 0 and its replicates, {path: value}.
    ``notes`` are lines for a person about what the file says and what comes of it; ``places`` are where each knob was
    written, as "file:line".
    """

    name: str
    source: str
    base: Resolved
    knobs: tuple[Knob, ...]
    implied: dict[str, Any]
    first_points: tuple[dict[str, Any], ...]
    budget: StudyBudget
    seed: int
    sampler: str
    stopping: str
    fit_probability: float
    replicates: int
    limits: PhaseLimits
    nodes: NodeRules
    places: Mapping[str, tuple[str, ...]]
    warm_start: tuple[ForeignPoint, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All that the sampler may search over, by name, in the order of the knobs."""
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
        """{path: value} of the knobs that are active at a point of the sampler."""
        return values_at(self.knobs, params)

    def searched(self) -> Resolved:
        """What every trial but trial 0 and its replicates lies over: ``base`` with ``implied``."""
        return self.base.with_values(self.implied, "bits vary") if self.implied else self.base

    def at(self, params: Mapping[str, Any]) -> Resolved:
        """The configuration at a point of the sampler; raises :class:`ConfigError` on an impossible combination."""
        return self.searched().with_values(self.overrides(params), "sampler")

    def describe(self) -> list[str]:
        """Lines for a person: the scale and why, how much is searched, and what cannot be."""
        config = self.base.config
        workers = f"{config.workers} worker{'s' if config.workers > 1 else ''}"
        knobs = f"{len(self.knobs)} knob{'s' if len(self.knobs) > 1 else ''}"
        head = f"{config.preset} at scale {config.scale} ({self.base.origins['scale']}), {workers}, {knobs}"
        return [head, *self.notes]

    def describe_knobs(self) -> list[str]:
        """Lines for a person: what is searched and where, and what follows from it."""
        lines = [f"{knob.path}: {knob.describe()}, trial 0 at {knob.preset_value!r}" for knob in self.knobs]
        lines += [
            f"{path} = {value:g} wherever the sampler searches: bits vary" for path, value in self.implied.items()
        ]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, as it stands in ``study_started``: what decides which trials are asked, and how they run.

        What JSON reads back is equal to it. ``source`` alone decides nothing: it is the file as it was named.
        """
        return {
            "name": self.name,
            "source": self.source,
            "preset": self.base.config.preset,
            "scale": self.base.config.scale,
            "budget": self.budget.to_dict(),
            "sampler": self.sampler,
            "stopping": self.stopping,
            "fit_probability": self.fit_probability,
            "seed": self.seed,
            "replicates": self.replicates,
            "fixed": self.fixed,
            "implied": dict(self.implied),
            "first_points": [dict(point) for point in self.first_points],
            "warm_start": [dataclasses.asdict(point) | {"records": list(point.records)} for point in self.warm_start],
            "knobs": {knob.path: _knob_to_dict(knob) for knob in self.knobs},
            "limits": dataclasses.asdict(self.limits),
            "nodes": dataclasses.asdict(self.nodes),
        }


def load_space(path: Path, *, has_gpu: HasGpu, layers: Sequence[Layer] = (), scale: str = "auto") -> Space:
    """Read a space file for the scale it names, or for the one that ``auto`` means on this machine.

    ``layers`` (such as ``--set``) lie over the file's fixed overrides and hold for every trial too. ``scale`` is what
    the file's ``auto`` is to mean. ``has_gpu``, where it is a function, is called only where it decides, and after all
    that does not depend on it was checked. Raises :class:`ConfigError`, with file, line and column, for whatever is
    wrong in the file or in the layers.
    """
    choose_scale(scale, has_gpu=False)
    file, document = read_space_file(path)
    if scale != "auto" and file.scale not in ("auto", scale):
        raise document.error("scale", f"is {file.scale}; only a file that says auto can be asked for {scale}")
    fixed = Layer.from_document(document, "fixed")
    _refuse_two_places(file, document, fixed, layers)
    own = [Layer(document.source, {"workers": file.workers}, document.positions)] if file.workers is not None else []
    chosen = scale if file.scale == "auto" else file.scale
    try:
        presets = {name: resolve(file.preset, name, has_gpu=False) for name in get_args(Scale)}
        for name, preset in presets.items():
            if name != chosen:
                check_other_scale(file, document, preset)
        knobs = read_knobs(file, document, presets[chosen]) if chosen != "auto" else ()
        base = resolve(file.preset, chosen, [fixed, *own, *layers], has_gpu=has_gpu)
    except ConfigError as error:
        raise document.locate(error) from error
    knobs = knobs or read_knobs(file, document, presets[base.config.scale])
    _refuse_searched_knobs(knobs, base, document)
    implied = _implied(knobs, [fixed, *layers], document)
    _check_replicate_seeds(file, base)
    space = Space(
        name=file.name,
        source=str(path),
        base=base,
        knobs=knobs,
        implied=implied,
        first_points=read_first_points(file, document, knobs, base.config.scale),
        budget=file.study_budget(),
        seed=file.seed,
        sampler=file.sampler,
        stopping=file.stopping,
        fit_probability=file.fit_probability,
        replicates=file.replicates,
        limits=file.phase_limits(),
        nodes=file.node_rules(),
        places=places_of(file, document, base.config.scale),
    )
    if space.stopping == RUNGS:
        try:
            shortened(space.searched(), SHARES[0])
        except ConfigError as error:
            raise document.error("stopping", f"has short runs, and {error.message}") from error
    for index, point in enumerate(space.first_points):
        try:
            space.searched().with_values(point, "first point")
        except ConfigError as error:
            raise document.error(f"first_points.{index}", error.message) from error
    warm = _read_warm_start(space, file, document)
    notes = [
        *overruled(file, document, base.config.scale),
        *_check_possible(space, file, document),
        *warm.notes,
        *_stopping_notes(space),
    ]
    return dataclasses.replace(space, notes=tuple(notes), warm_start=warm.points)


def _stopping_notes(space: Space) -> list[str]:
    if space.stopping != RUNGS:
        return []
    shares = ", ".join(f"{100 * share:.0f}%" for share in SHARES)
    return [
        f"stopping: rungs: points are run at {shares} of the length, each run a trial of the budget; what is said "
        "before the start of time and cost is of whole runs"
    ]


def _read_warm_start(space: Space, file: SpaceFile, document: Document) -> WarmStart:
    """The observations that the file names, relative to the folder of the file in which it names them."""
    if file.warm_start is None:
        return WarmStart((), ())
    position = document.position("warm_start")
    home = Path(document.source if position is None else position.source).parent
    try:
        observations = read_observations(home / file.warm_start)
    except (ConfigError, ValueError) as error:
        raise document.error("warm_start", str(error)) from error
    return warm_start(observations, space.knobs, space.base.config, space.searched().config)


def _refuse_two_places(file: SpaceFile, document: Document, fixed: Layer, layers: Sequence[Layer]) -> None:
    """A setting is a knob, or fixed, or chosen by ``workers:``, and never two of these."""
    for layer in (fixed, *layers):
        for path in layer.flat():
            if path in file.knobs:
                raise layer.error(path, f"is a knob of {document.source}; remove it there or here")
    if file.workers is not None and "workers" in fixed.flat():
        raise fixed.error("workers", "is given twice: as workers of the space as well; remove one")


def _refuse_searched_knobs(knobs: Sequence[Knob], base: Resolved, document: Document) -> None:
    """There are two ways to spend the bytes of an export, and a study has one of them."""
    if base.config.export.search is None:
        return
    for knob in knobs:
        if knob.path.startswith("export."):
            raise document.error(
                f"knobs.{knob.path}",
                "cannot be a knob where export.search is on, which finds each trial's export: remove one of the two",
            )


def _implied(knobs: Sequence[Knob], layers: Sequence[Layer], document: Document) -> dict[str, Any]:
    """Where bits vary the quantization step has no floor: with one, int8 can come out smaller than int7."""
    if not any(knob.path.startswith(_BITS) for knob in knobs):
        return {}
    if any(knob.path == _SCALE_FLOOR for knob in knobs):
        raise document.error(f"knobs.{_SCALE_FLOOR}", "cannot be a knob where bits vary: they need it to be 0")
    for layer in layers:
        if layer.flat().get(_SCALE_FLOOR, 0.0) != 0.0:
            raise layer.error(_SCALE_FLOOR, "must be 0 where bits vary, or fewer bits could be more bytes; remove it")
    return {_SCALE_FLOOR: 0.0}


def _check_replicate_seeds(file: SpaceFile, base: Resolved) -> None:
    """Trial 0 runs again on seeds counted up from its own: the last of them must be a seed too."""
    seed, last = base.config.runtime.seed, LARGEST_SEED - (file.replicates - 1)
    if seed > last:
        raise base.error(_SEED, f"must be <= {last} so that trial 0 has {file.replicates} seeds, got {seed}")


def _check_possible(space: Space, file: SpaceFile, document: Document) -> list[str]:
    """Refuse knobs of which nothing can run, and choices that cannot; lines about other values that cannot."""
    scale, lines = space.base.config.scale, []
    for found in impossible_values(space.knobs, space.searched().config):
        path, domain = found.knob.path, found.knob.domain
        if found.all_values:
            raise document.error(knob_place(file, scale, path, None), str(found))
        if isinstance(domain, Choice):
            index = domain.choices.index(found.values[0])
            raise document.error(knob_place(file, scale, path, f"choices.{index}"), str(found))
        lines.append(f"{path}: {found}; such trials are refused as they come")
    return lines


def _knob_to_dict(knob: Knob) -> dict[str, Any]:
    domain = {name: list(own) if isinstance(own, tuple) else own for name, own in vars(knob.domain).items()}
    plain = {"type": {FloatRange: "float", IntRange: "int", Choice: "choice"}[type(knob.domain)], **domain}
    plain |= {"complement": knob.complement, "or_zero": knob.or_zero, "at_most": knob.at_most}
    plain["when"] = {condition.path: list(condition.values) for condition in knob.when}
    return plain | {"preset": knob.preset_value}
