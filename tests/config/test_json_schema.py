"""The schema that editors read says what the configuration checks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from golfray.config.errors import ConfigError
from golfray.config.json_schema import config_schema, overrides_schema, value_schema
from golfray.config.resolve import load_preset, preset_names, resolve
from golfray.config.schema import check_value, field_info, field_paths, section_names

CONFIG = Draft202012Validator(config_schema())
OVERRIDES = Draft202012Validator(overrides_schema())

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**66),
    st.sampled_from([0, 1, 2, 4, 8, 9, 10, 1000, 1001, 65_536, 65_537, 2**63 - 1, 2**63]),
    st.sampled_from([-0.5, 0.0, 0.5, 0.95, 1.5, 1e30]),
    st.sampled_from(["auto", "on", "cpu", "float32", "bfloat16", "", "no"]),
    st.just([1]),
    st.just({"a": 1}),
)


def is_checked(path: str, value: Any) -> bool:
    try:
        check_value(path, value)
    except ConfigError:
        return False
    return True


def test_the_schemas_are_schemas() -> None:
    for schema in (config_schema(), overrides_schema()):
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", field_paths())
def test_a_value_is_good_for_both_or_for_neither(path: str) -> None:
    validator = Draft202012Validator(value_schema(path))

    @settings(max_examples=40)
    @given(VALUES)
    def agree(value: Any) -> None:
        # JSON knows no difference between 1 and 1.0, and golfray does where an integer is meant.
        if not (isinstance(value, float) and value.is_integer() and field_info(path).kind == "int"):
            assert validator.is_valid(value) == is_checked(path, value)

    agree()


def test_every_setting_is_described() -> None:
    schema = config_schema()["properties"]
    for path in field_paths():
        section, _, name = path.rpartition(".")
        place = schema[section]["properties"][name] if section else schema[name]
        assert place["description"] == field_info(path).description
    assert all(schema[section]["description"] for section in section_names())


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("scale", ["full", "laptop"])
def test_presets_are_what_the_schemas_describe(preset: str, scale: str) -> None:
    config = resolve(preset, scale, has_gpu=False).config.model_dump()
    CONFIG.validate(config)
    OVERRIDES.validate(load_preset(preset).values["scales"][scale])
    assert not CONFIG.is_valid({**config, "scale": "auto"})
    assert not CONFIG.is_valid({**config, "bytes_code": 1})
    del config["model"]["num_heads"]
    assert not CONFIG.is_valid(config)
    OVERRIDES.validate({"model": config["model"], "muon.ns_steps": 5, "workers": 2})
    assert not OVERRIDES.is_valid({"scale": "full"})
    assert not OVERRIDES.is_valid({"muon": {"ns_stepz": 5}})
