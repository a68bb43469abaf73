"""A configuration as a person or a program reads it: every value, where it came from, and which are searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from golfray.config.errors import shown
from golfray.config.resolve import Resolved
from golfray.config.schema import field_info, field_paths
from golfray.config.sizes import count_text
from golfray.sweep.space import Space


def configuration_lines(resolved: Resolved, space: Space | None, *, described: bool) -> list[str]:
    """The listing of ``golfray show config``: aligned columns; ``described``: with what each setting is.

    ``space`` is the space that ``resolved`` is the base of, where there is one.
    """
    config = resolved.config
    rows = [(path, shown(config.value(path)), origin(resolved, path)) for path in field_paths()]
    lines = [f"{config.preset} at scale {config.scale} ({resolved.origins['scale']})", ""]
    settings = _aligned([("setting", "value" if space is None else "trial 0", "from"), *rows])
    lines.append(next(settings))
    for path, line in zip(field_paths(), settings, strict=True):
        lines.append(line)
        if described:
            info = field_info(path)
            lines.append(f"    {info.description} Must be {info.expects}.")
    return lines if space is None else [*lines, "", *_space_lines(space)]


def configuration_document(resolved: Resolved, space: Space | None) -> dict[str, Any]:
    """The same for programs. ``config`` is the nested form, which `golfray show schema config` describes."""
    settings = {
        path: {
            "value": resolved.config.value(path),
            "from": origin(resolved, path),
            "description": field_info(path).description,
        }
        for path in field_paths()
    }
    document = {
        "preset": resolved.config.preset,
        "scale": resolved.config.scale,
        "scale_reason": resolved.origins["scale"],
        "settings": settings,
        "config": resolved.config.model_dump(),
        "space": None,
    }
    if space is not None:
        written = space.to_dict()
        for knob in space.knobs:
            written["knobs"][knob.path] |= {"searched": knob.describe(), "from": list(space.places[knob.path])}
        document["space"] = written | {"notes": list(space.notes)}
    return document


def origin(resolved: Resolved, path: str) -> str:
    """Where a value came from: file and line, an option, and for a preset's own values at which of its scales."""
    (owner,) = [layer for layer in resolved.layers if path in layer.flat()][-1:]
    scale = owner.prefix.removeprefix("scales.").rstrip(".") if owner.prefix.startswith("scales.") else ""
    return resolved.origins[path] + (f", scale {scale}" if scale else "")


def _space_lines(space: Space) -> Iterator[str]:
    rows = [
        (knob.path, shown(knob.preset_value), knob.describe(), _places(space.places[knob.path])) for knob in space.knobs
    ]
    yield from _aligned([("knob", "trial 0", "searched", "from"), *rows])
    yield ""
    for path, value in space.implied.items():
        yield f"{path} is {shown(value)} wherever the sampler searches: bits vary"
    yield f"budget: {' or '.join(space.budget.words())}; trial 0 runs on {count_text(space.replicates, 'seed')}"
    if space.budget.extra_seeds is not None:
        yield f"at most {count_text(space.budget.extra_seeds, 'extra seed')} for what is nearly tied with the best"
    yield f"sampler: {space.sampler}, seed {space.seed}"
    for index, point in enumerate(space.first_points):
        yield f"first point {index}: {', '.join(f'{path} {shown(value)}' for path, value in point.items())}"
    for foreign in space.warm_start:
        values = ", ".join(f"{path} {shown(value)}" for path, value in foreign.values.items())
        scored = f"{foreign.difference:+.4f} +-{foreign.noise:.4f} BPB, told as {foreign.told(0.0):+.4f} of trial 0"
        yield f"foreign point of {', '.join(foreign.records)}: {scored} ({values})"
    limits = ", ".join(f"{name} {_seconds(value)}" for name, value in space.to_dict()["limits"].items())
    yield f"limits in seconds: {limits}"
    asked = ", ".join(f"{name} {value}" for name, value in space.to_dict()["nodes"].items() if value is not None)
    if asked:
        yield f"nodes: {asked}"
    yield from space.notes


def _places(places: Sequence[str]) -> str:
    """ "muon.yaml:19, 60": a file once, where both places are in it."""
    files = [place.rpartition(":")[0] for place in places]
    return ", ".join(
        place.rpartition(":")[2] if index and files[index] == files[index - 1] else place
        for index, place in enumerate(places)
    )


def _seconds(value: float | None) -> str:
    return "by its length" if value is None else f"{value:g}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
