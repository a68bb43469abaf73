"""JSON Schema (draft 2020-12) of space files, for editors: every knob by its path, with the bounds of its setting."""

from __future__ import annotations

from typing import Any

from golfray.config.json_schema import DIALECT, bare_value_schema, closed, overrides_schema, value_schema
from golfray.config.resolve import preset_names
from golfray.config.schema import FieldInfo, field_info, field_paths
from golfray.sweep.knob_reader import why_not_searched
from golfray.sweep.space_file import NAME_PATTERN, SpaceFile

_NEEDED = ["name", "preset", "budget", "knobs"]


def space_schema() -> dict[str, Any]:
    """Of a space file. A file that extends another one may leave out what that one says.

    What it cannot say, such as low < high, is checked when the file is read.
    """
    written = SpaceFile.model_json_schema(by_alias=True)
    properties = _untitled(written["properties"])
    definitions = _untitled({name: written["$defs"][name] for name in ("Budget", "Limits", "Nodes")})
    paths = searchable_paths()
    definitions |= {f"knob {path}": _knob_schema(field_info(path), written["$defs"]["KnobEntry"]) for path in paths}
    definitions["when"] = _when_schema(paths)
    knobs = {path: {"$ref": f"#/$defs/knob {path}".replace(" ", "%20")} for path in paths}
    properties["extends"] = {
        "type": "string",
        "minLength": 1,
        "description": properties["extends"]["description"],
    }
    properties["name"]["pattern"] = f"^{NAME_PATTERN}$"
    properties["preset"]["enum"] = list(preset_names())
    properties["workers"] = value_schema("workers") | {
        "type": ["integer", "null"],
        "description": properties["workers"]["description"],
    }
    properties["fixed"] |= overrides_schema()
    properties["knobs"] |= closed({path: {"anyOf": [knob, {"type": "null"}]} for path, knob in knobs.items()})
    properties["first_points"]["items"] = closed({path: value_schema(path) for path in paths}) | {"minProperties": 1}
    scale = closed(knobs)
    properties["scales"] |= closed({"full": scale, "laptop": scale})
    return {
        "$schema": DIALECT,
        "title": "golfray search space",
        "description": written["description"],
        **closed(properties),
        "if": {"required": ["extends"]},
        "else": _alone(),
        "$defs": definitions,
    }


def searchable_paths() -> list[str]:
    """Settings that a knob may name."""
    return [path for path in field_paths() if why_not_searched(path) is None]


def _alone() -> dict[str, Any]:
    """What a file must say that extends no other. Where there are scales, they may complete a knob's range."""
    complete = {"type": "object", "anyOf": [{"required": ["low", "high"]}, {"required": ["choices"]}]}
    return {
        "required": _NEEDED,
        "properties": {
            "budget": {"anyOf": [{"required": [limit]} for limit in ("trials", "minutes", "gpu_hours", "usd")]},
            "knobs": {"minProperties": 1, "additionalProperties": {"type": "object"}},
        },
        "if": {"not": {"required": ["scales"]}},
        "then": {"properties": {"knobs": {"additionalProperties": complete}}},
    }


def _knob_schema(info: FieldInfo, entry: dict[str, Any]) -> dict[str, Any]:
    """Of the entry of one knob, complete or not."""
    about = {name: field["description"] for name, field in entry["properties"].items()}
    value = bare_value_schema(info)
    fields: dict[str, dict[str, Any]] = {
        "choices": {"type": ["array", "null"], "items": value, "minItems": 2, "uniqueItems": True},
        "at_preset": value,
        "when": {"anyOf": [{"$ref": "#/$defs/when"}, {"type": "null"}]},
    }
    if info.kind in ("float", "int"):
        number = {"type": "integer" if info.kind == "int" else "number", "exclusiveMinimum": 0}
        end = {name: limit for name, limit in value.items() if name != "type"} | {"type": number["type"]}
        fields |= {
            "low": end,
            "high": end,
            "log": {"type": "boolean"},
            "step": {"anyOf": [number, {"type": "null"}]},
            "complement": {"type": "boolean"} if info.kind == "float" else {"const": False},
            "or_zero": {"type": "boolean"},
            "at_most": {"enum": [*searchable_paths(), None]},
        }
    described = {name: field | {"description": about[name]} for name, field in fields.items()}
    ranged = [{"required": [name]} for name in ("low", "high", "step") if name in fields]
    schema = closed(described) | {"description": info.description}
    return schema | ({"dependentSchemas": {"choices": {"not": {"anyOf": ranged}}}} if ranged else {})


def _when_schema(paths: list[str]) -> dict[str, Any]:
    properties = {}
    for path in paths:
        value = bare_value_schema(field_info(path))
        properties[path] = {"anyOf": [value, {"type": "array", "items": value, "minItems": 1}]}
    return closed(properties) | {"minProperties": 1}


def _untitled(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that say a name once more."""
    return {
        name: _untitled(value) if isinstance(value, dict) else value
        for name, value in schema.items()
        if name != "title" or not isinstance(value, str)
    }
