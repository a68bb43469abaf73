"""The configuration mirrors the core's settings, refuses what is wrong, and describes every path."""

import dataclasses
import json
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from golfray.config import schema
from golfray.config.errors import ConfigError
from golfray.config.resolve import resolve
from golfray.config.rules import CODEC_LEVELS
from golfray.config.schema import Config, FieldInfo, check_value, field_info, field_paths, section_names
from golfray.config.sections import Section
from golfray.core.settings import ExportSettings, RunSettings, settings_from_dict, settings_to_json

SECTIONS = {
    field.name: type(field.default) for field in dataclasses.fields(RunSettings) if field.name in section_names()
}


def plain_type(annotation: Any) -> Any:
    """``annotation`` without bounds, and with the type of its members in the place of a closed list."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return plain_type(get_args(annotation)[0])
    if origin is Literal:
        (kind,) = {type(choice) for choice in get_args(annotation)}
        return kind
    if origin in (Union, types.UnionType):
        return frozenset(plain_type(part) for part in get_args(annotation))
    return annotation


def test_there_is_one_section_for_each_dataclass_and_nothing_else() -> None:
    settings = {field.name for field in dataclasses.fields(RunSettings)}
    assert settings - set(section_names()) == {"cap_bytes", "bytes_code", "clock_trace"}
    assert set(Config.model_fields) == set(section_names()) | {"preset", "scale", "workers", "cap_bytes"}


@pytest.mark.parametrize("name", section_names())
def test_sections_have_the_fields_and_types_of_the_core(name: str) -> None:
    model = typing.cast(type[Section], Config.model_fields[name].annotation)
    mirrored = typing.get_type_hints(SECTIONS[name])
    hints = typing.get_type_hints(model, include_extras=True)
    assert list(model.model_fields) == list(mirrored)
    assert {field: plain_type(hints[field]) for field in mirrored} == {
        field: plain_type(hint) for field, hint in mirrored.items()
    }


def test_every_setting_is_described_and_says_what_null_means() -> None:
    for path in field_paths():
        info = field_info(path)
        assert len(info.description) > 15, path
        assert info.description.endswith("."), path
        assert not info.nullable or "null" in info.description, path


def test_sections_have_no_defaults_of_their_own() -> None:
    for path in field_paths():
        section, _, name = path.rpartition(".")
        fields = typing.cast(Any, Config.model_fields[section].annotation).model_fields if section else None
        assert (fields or Config.model_fields)[name].is_required(), path


@pytest.mark.parametrize(
    ("path", "kind", "expects"),
    [
        ("optimizer.matrix_lr", "float", "a number >= 0"),
        ("muon.momentum_end", "float", "a number >= 0 and < 1"),
        ("muon.momentum_warmup_share", "float", "a number > 0 and <= 1 or null"),
        ("model.vocab_size", "int", "an integer >= 2 and <= 65536"),
        ("model.tie_embeddings", "bool", "true or false"),
        ("muon.ns_dtype", "choice", "one of bfloat16, float32"),
        ("data.folder", "str", "text"),
        ("stop.steps", "int", "an integer >= 1 or null"),
        ("workers", "int", "an integer >= 1"),
    ],
)
def test_field_info(path: str, kind: str, expects: str) -> None:
    info = field_info(path)
    assert (info.kind, info.expects) == (kind, expects)


def test_field_info_in_full() -> None:
    assert field_info("export.bits_mlp") == FieldInfo(
        path="export.bits_mlp",
        kind="int",
        nullable=False,
        low=2,
        high=32,
        low_open=False,
        high_open=False,
        choices=(),
        description="Bits of an MLP matrix's integers: 4 to 8, under flat 2 to 8, or 16 or 32 for floating point.",
    )


UNKNOWN = [
    ("optimzer.matrix_lr", "optimzer.matrix_lr: unknown setting; did you mean optimizer.matrix_lr?"),
    ("muon.matrix_lr", "muon.matrix_lr: unknown setting; did you mean optimizer.matrix_lr?"),
    ("bits_mlp", "bits_mlp: unknown setting; did you mean export.bits_mlp?"),
    ("batch.seqlen", "batch.seqlen: unknown setting; did you mean batch.seq_len?"),
    ("model.num_layers.low", "model.num_layers.low: unknown setting; did you mean model.num_layers?"),
    ("stop.zzz", "stop.zzz: unknown setting; known: stop.steps, stop.seconds"),
    (
        "zzz",
        "zzz: unknown setting; known: model, optimizer, muon, schedule, batch, stop, data, averaging, export, "
        "evaluation, ship, runtime, workers, cap_bytes",
    ),
    ("stop", "stop: is a section; name one of its settings: stop.steps, stop.seconds"),
    ("preset", "preset: cannot be varied or overridden; choose the preset where the run is started"),
    ("scale", "scale: cannot be varied or overridden; choose the scale where the run is started"),
]


@pytest.mark.parametrize(("path", "message"), UNKNOWN)
def test_unknown_paths(path: str, message: str) -> None:
    for ask in (field_info, lambda name: check_value(name, 1)):
        with pytest.raises(ConfigError) as caught:
            ask(path)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("workers", 0, "must be an integer >= 1, got 0"),
        ("cap_bytes", "16 MB", 'must be an integer >= 1, got "16 MB"'),
        ("model.vocab_size", 65_537, "must be an integer >= 2 and <= 65536, got 65537"),
        ("model.num_layers", 2.0, "must be an integer >= 1 and <= 1000, got 2.0"),
        ("model.num_layers", True, "must be an integer >= 1 and <= 1000, got true"),
        ("model.tie_embeddings", "no", 'must be true or false, got "no"'),
        ("model.tie_embeddings", 1, "must be true or false, got 1"),
        ("model.mlp_mult", 0.0, "must be a number > 0, got 0.0"),
        ("optimizer.matrix_lr", -0.1, "must be a number >= 0, got -0.1"),
        ("optimizer.matrix_lr", "0.1", 'must be a number >= 0, got "0.1"'),
        ("optimizer.matrix_lr", None, "must be a number >= 0, got null"),
        ("optimizer.matrix_lr", [0.1], "must be a number >= 0, got [0.1]"),
        ("optimizer.matrix_lr", {"low": 0.1}, 'must be a number >= 0, got {"low": 0.1}'),
        ("optimizer.matrix_lr", float("nan"), "must be a number >= 0, got NaN"),
        ("optimizer.matrix_lr", float("inf"), "must be a number >= 0, got Infinity"),
        ("muon.momentum_end", 1.0, "must be a number >= 0 and < 1, got 1.0"),
        ("muon.momentum_start", -0.1, "must be a number >= 0 and < 1, got -0.1"),
        ("muon.momentum_warmup_share", 0.0, "must be a number > 0 and <= 1 or null, got 0.0"),
        ("schedule.warmdown_share", 1.01, "must be a number > 0 and <= 1 or null, got 1.01"),
        ("muon.ns_dtype", "float16", 'must be one of bfloat16, float32, got "float16"'),
        ("stop.steps", 0, "must be an integer >= 1 or null, got 0"),
        ("stop.seconds", 0, "must be a number > 0 and <= 31536000 or null, got 0"),
        ("data.folder", None, "must be text, got null"),
        ("export.bits_attention", 33, "must be an integer >= 2 and <= 32, got 33"),
        ("export.bits_mlp", 1, "must be an integer >= 2 and <= 32, got 1"),
        ("runtime.device", "gpu", 'must be one of auto, cpu, cuda, got "gpu"'),
        ("runtime.compile", True, "must be one of auto, on, off, got true"),
        ("runtime.dtype", "float16", 'must be one of auto, float32, bfloat16, got "float16"'),
    ],
)
def test_values_out_of_type_or_bounds(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_value(path, value)
    assert str(caught.value) == f"{path}: {message}"


def test_an_integer_serves_where_a_number_is_meant() -> None:
    value = check_value("stop.seconds", 600)
    assert (value, type(value)) == (600.0, float)
    assert check_value("stop.seconds", None) is None


def test_bounds_that_are_described_are_the_bounds_that_are_checked() -> None:
    for path in field_paths():
        info = field_info(path)
        for bound, is_open, side in ((info.low, info.low_open, -1), (info.high, info.high_open, 1)):
            if bound is None:
                continue
            outward = side * (1 if info.kind == "int" else max(1e-9, 1e-9 * abs(bound)))
            at_bound = int(bound) if info.kind == "int" else float(bound)
            inside = at_bound - outward if is_open else at_bound
            outside = at_bound if is_open else at_bound + outward
            assert check_value(path, inside) == inside, path
            with pytest.raises(ConfigError):
                check_value(path, outside)


def test_a_configuration_is_frozen_and_closed() -> None:
    values = {
        **{name: dataclasses.asdict(settings()) for name, settings in SECTIONS.items()},
        "preset": "parameter-golf",
        "scale": "full",
        "workers": 8,
        "cap_bytes": 16_000_000,
    }
    config = Config.model_validate(values)
    with pytest.raises(ValidationError, match="frozen"):
        config.workers = 4  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config.model_validate({**values, "bytes_code": 1})
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config.model_validate({**values, "stop": {**values["stop"], "hours": 1}})
    with pytest.raises(ValueError, match=r"^bytes_code must be >= 0, got -1$"):
        config.to_run_settings(-1)


def test_the_json_schema_knows_bounds_choices_and_descriptions() -> None:
    definitions = Config.model_json_schema()["$defs"]
    bits = definitions["Export"]["properties"]["bits_mlp"]
    assert (bits["minimum"], bits["maximum"]) == (2, 32)
    assert definitions["Muon"]["properties"]["ns_dtype"]["enum"] == ["bfloat16", "float32"]
    assert definitions["Model"]["additionalProperties"] is False
    assert definitions["Stop"]["properties"]["steps"]["description"] == field_info("stop.steps").description


def valid_value(info: FieldInfo) -> st.SearchStrategy[Any]:
    match info.kind:
        case "choice":
            values: st.SearchStrategy[Any] = st.sampled_from(info.choices)
        case "bool":
            values = st.booleans()
        case "str":
            values = st.text(max_size=8)
        case "int":
            high = None if info.high is None else int(info.high) - info.high_open
            values = st.integers(int(info.low or 0), high)
        case _:
            values = st.floats(
                info.low,
                info.high,
                exclude_min=info.low_open,
                exclude_max=info.high_open,
                allow_nan=False,
                allow_infinity=False,
            )
    return st.none() | values if info.nullable else values


@st.composite
def configs(draw: st.DrawFn) -> Config:
    values: dict[str, Any] = {path: draw(valid_value(field_info(path))) for path in field_paths()}
    # What the rules between fields bind together is built so that they hold.
    small = st.integers(1, 12)
    heads_per_kv, kv_heads, half_head = draw(small), draw(small), draw(small)
    workers, slices_per_worker, seq_len, rows = draw(small), draw(small), draw(st.integers(1, 4096)), draw(small)
    dim = 2 * half_head * heads_per_kv * kv_heads
    slices = workers * slices_per_worker
    values |= {
        "model.num_kv_heads": kv_heads,
        "model.num_heads": heads_per_kv * kv_heads,
        "model.model_dim": dim,
        "model.mlp_mult": draw(st.integers(1, 8 * dim)) / dim,
        "workers": workers,
        "batch.slices": slices,
        "batch.seq_len": seq_len,
        "batch.tokens": slices * seq_len * rows,
        "batch.val_tokens": slices * seq_len + draw(st.integers(0, 10_000)),
    }
    low, high = CODEC_LEVELS[values["export.codec"]]
    values |= {
        "export.format": "flat",
        "export.codec_level": draw(st.integers(low, high)),
        "export.overrides": draw(
            st.sampled_from(["", "*.attn.c_k.* bits=8", "blocks.0.* clip=std k=14.5 floor=0; tok* bits=16"])
        ),
        **{path: draw(st.sampled_from([2, 5, 8, 16, 32])) for path in field_paths() if ".bits_" in path},
    }
    if draw(st.booleans()):
        # Under the reference format only the bits of matrices are free.
        free = ("bits_attention", "bits_mlp", "bits_embedding", "keep_float_max_numel", "scale_floor", "clip_quantile")
        reference = dataclasses.asdict(ExportSettings())
        values |= {f"export.{name}": value for name, value in reference.items() if name not in free}
        values |= {f"export.{name}": draw(st.integers(4, 8)) for name in free[:3]}
    if any(values[f"export.clip_{name}"] == "std" for name in ("attention", "mlp", "embedding")):
        values["export.scale_floor"] = 0.0
    if values["export.gptq"] and values["stop.seconds"] is not None:
        values["export.gptq_reserve_seconds"] = draw(st.floats(0.0, values["stop.seconds"], exclude_max=True))
    if values["stop.steps"] is None and values["stop.seconds"] is None:
        values["stop.steps"] = draw(small)
    if values["evaluation.sliding_stride"] is not None:
        values["evaluation.sliding_stride"] = draw(st.integers(1, seq_len))
    if values["averaging.method"] == "swa" and values["averaging.swa_start_share"] is None:
        values["schedule.warmdown_share"] = draw(st.floats(0.01, 1.0))
        values["schedule.lr_floor"] = draw(st.floats(0.0, values["averaging.swa_start_multiplier"], exclude_max=True))
    nested: dict[str, Any] = {"preset": "any", "scale": draw(st.sampled_from(get_args(schema.Scale)))}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return Config.model_validate(nested)


@given(configs(), st.integers(0, 100_000))
def test_settings_survive_their_dictionary_and_json_forms(config: Config, bytes_code: int) -> None:
    settings = config.to_run_settings(bytes_code)
    assert settings_from_dict(dataclasses.asdict(settings)) == settings
    assert settings_from_dict(json.loads(settings_to_json(settings))) == settings
    assert (settings.cap_bytes, settings.bytes_code) == (config.cap_bytes, bytes_code)
    for name in section_names():
        assert dataclasses.asdict(getattr(settings, name)) == getattr(config, name).model_dump()


def test_the_value_at_every_path() -> None:
    config = resolve("parameter-golf", "laptop", has_gpu=False).config
    plain = config.model_dump()
    for path in (*field_paths(), "preset", "scale"):
        section, _, name = path.rpartition(".")
        assert config.value(path) == (plain[section] if section else plain)[name]
    for path in ("optimizer", "optimizer.matrx_lr", "matrix_lr", "value", "optimizer.matrix_lr.real"):
        with pytest.raises(ConfigError):
            config.value(path)
