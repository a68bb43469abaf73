"""JSON Schema (draft 2020-12) of settings, for editors: the bounds, choices and descriptions that are checked too.

Rules between settings have no form there; they are checked when a configuration is resolved.
"""

from __future__ import annotations

from typing import Any

from golfray.config.resolve import preset_names
from golfray.config.schema import CHOSEN_AT_START, Config, FieldInfo, field_info, field_paths, section_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TYPES = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}


def config_schema() -> dict[str, Any]:
    """Of a whole configuration in its nested form: every setting is required."""
    own = [path for path in field_paths() if "." not in path]
    properties = {
        "preset": {"enum": list(preset_names()), "description": _described("preset")},
        "scale": {"enum": ["full", "laptop"], "description": _described("scale")},
        **{path: value_schema(path) for path in own},
        **{name: _section(name) for name in section_names()},
    }
    return {
        "$schema": DIALECT,
        "title": "golfray configuration",
        **closed(properties, required=list(properties)),
    }


def overrides_schema() -> dict[str, Any]:
    """Of overrides: any settings, by their dotted path or nested in their sections; none is required."""
    sections = {name: _section(name, partial=True) for name in section_names()}
    return closed({**sections, **{path: value_schema(path) for path in field_paths()}})


def value_schema(path: str) -> dict[str, Any]:
    """Of one setting's value, with its description. Raises ``ConfigError`` where there is no such setting."""
    info = field_info(path)
    return bare_value_schema(info) | {"description": info.description}


def bare_value_schema(info: FieldInfo) -> dict[str, Any]:
    """Of one setting's value, without words."""
    if info.choices:
        return {"enum": [*info.choices, *([None] if info.nullable else [])]}
    kind = _TYPES[info.kind]
    schema: dict[str, Any] = {"type": [kind, "null"] if info.nullable else kind}
    if info.low is not None:
        schema["exclusiveMinimum" if info.low_open else "minimum"] = info.low
    if info.high is not None:
        schema["exclusiveMaximum" if info.high_open else "maximum"] = info.high
    return schema


def closed(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    """Of an object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": required} if required else schema


def _section(name: str, *, partial: bool = False) -> dict[str, Any]:
    members = [path for path in field_paths() if path.startswith(f"{name}.")]
    properties = {path.partition(".")[2]: value_schema(path) for path in members}
    about = (Config.model_fields[name].annotation.__doc__ or "").strip()
    return closed(properties, None if partial else list(properties)) | {"description": about}


def _described(path: str) -> str:
    assert path in CHOSEN_AT_START
    return Config.model_fields[path].description or ""
