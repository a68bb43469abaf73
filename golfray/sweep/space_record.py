"""The space of a study, rebuilt from its log: to resume a study takes no space file, which may have changed since.

The log has the space at one scale with everything resolved (:meth:`golfray.sweep.space.Space.to_dict`): the file that
it extended, ``--set`` and ``scale: auto`` are in it already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from golfray.config.resolve import Layer, resolve
from golfray.sweep.budget import StudyBudget
from golfray.sweep.events import EventLogError
from golfray.sweep.knobs import Choice, Condition, FloatRange, IntRange, Knob, Parameter
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.node_rules import NodeRules
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space
from golfray.sweep.space_file import DEFAULT_FIT_PROBABILITY
from golfray.sweep.stopping import OFF
from golfray.sweep.warm_start import ForeignPoint

_FOLDER = "data.folder"
_TOKENIZER = "data.tokenizer"


def space_of(record: StudyRecord, source: str, layers: Sequence[Layer] = ()) -> Space:
    """The space that the study in ``record`` searches now; ``source`` names its log.

    ``layers`` (such as ``--set``) lie over what the log fixes; where one names another folder of data, the tokenizer of
    the log's folder goes with it. Raises ``ConfigError`` where this version of golfray does not accept what the log
    has, ``EventLogError`` where no study has started there or its space is damaged.
    """
    if not record.header:
        raise EventLogError(f"{source}: no study has started here, so there is none to resume")
    try:
        return _space_of(record, source, layers)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        wrong = f"the space in it is damaged ({type(error).__name__}: {error})"
        raise EventLogError(f"{source}: {wrong}; restore the file from a copy") from error


def _space_of(record: StudyRecord, source: str, layers: Sequence[Layer]) -> Space:
    header, values = record.header, record.header["space"]
    fixed = Layer(source, _still_fixed(values["fixed"], layers))
    knobs = tuple(knob_of(path, entry) for path, entry in values["knobs"].items())
    return Space(
        name=values["name"],
        source=values["source"],
        base=resolve(header["preset"], header["scale"], [fixed, *layers], has_gpu=False),
        knobs=knobs,
        implied=dict(values["implied"]),
        first_points=tuple(dict(point) for point in values["first_points"]),
        budget=StudyBudget.from_dict(header["budget"]),
        seed=values["seed"],
        sampler=values["sampler"],
        # Logs of earlier versions do not say: no trial was stopped then.
        stopping=values.get("stopping", OFF),
        # Nor did they of this: nothing but a trial's own size counted then.
        fit_probability=values.get("fit_probability", DEFAULT_FIT_PROBABILITY),
        replicates=values["replicates"],
        limits=PhaseLimits(**values.get("limits", {})),
        nodes=NodeRules(**values.get("nodes", {})),
        places={knob.path: (source,) for knob in knobs},
        # Nor of these.
        warm_start=tuple(
            ForeignPoint(**{**point, "records": tuple(point["records"])}) for point in values.get("warm_start", [])
        ),
    )


def _still_fixed(fixed: Mapping[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """A folder's tokenizer is that folder's own: another folder has another one, or the layer names it."""
    moved = any(_FOLDER in layer.flat() for layer in layers)
    return {path: value for path, value in fixed.items() if not (moved and path == _TOKENIZER)}


def knob_of(path: str, entry: Mapping[str, Any]) -> Knob:
    """A knob from what the log has of it under its path."""
    return Knob(
        path=path,
        domain=_domain(entry),
        complement=entry["complement"],
        or_zero=entry["or_zero"],
        at_most=entry["at_most"],
        preset_value=entry["preset"],
        when=tuple(Condition(other, tuple(allowed)) for other, allowed in entry.get("when", {}).items()),
    )


def _domain(entry: Mapping[str, Any]) -> Parameter:
    match entry["type"]:
        case "choice":
            return Choice(tuple(entry["choices"]))
        case "int":
            return IntRange(entry["low"], entry["high"], entry["log"], entry["step"])
        case _:
            return FloatRange(entry["low"], entry["high"], entry["log"], entry["step"])
