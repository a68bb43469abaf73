"""Presets, layers, origins, and the place of every refusal."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from golfray.config import schema
from golfray.config.errors import ConfigError
from golfray.config.positions import parse_yaml
from golfray.config.resolve import (
    Layer,
    Resolved,
    choose_scale,
    load_preset,
    parse_set,
    preset_names,
    resolve,
)
from golfray.core.settings import RunSettings

SPACE = """\
name: demo
fixed:
  optimizer.matrix_lr: 0.02
  batch:
    tokens: 8192
  runtime.compile: off
"""


def laptop(overrides: Any = ()) -> Resolved:
    return resolve("parameter-golf", "laptop", overrides, has_gpu=False)


def refused(overrides: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        laptop(overrides)
    return str(caught.value)


def space(text: str) -> list[Layer]:
    return [Layer.from_document(parse_yaml(text, "demo.yaml"), "fixed")]


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("scale", ["full", "laptop"])
def test_presets_load_at_each_scale(preset: str, scale: str) -> None:
    resolved = resolve(preset, scale, has_gpu=False)
    assert (resolved.config.preset, resolved.config.scale) == (preset, scale)
    assert set(resolved.origins) == {"preset", "scale", *schema.field_paths()}


@pytest.mark.parametrize("preset", preset_names())
def test_a_smaller_scale_states_only_what_differs(preset: str) -> None:
    document = load_preset(preset)
    assert set(document.values) == {"scales"}
    assert set(document.values["scales"]) == {"full", "laptop"}
    full = Layer.from_document(document, "scales.full").flat()
    differing = Layer.from_document(document, "scales.laptop").flat()
    assert tuple(full) == schema.field_paths()
    assert [path for path, value in differing.items() if full[path] == value] == []


def test_full_parameter_golf_is_the_reference() -> None:
    config = resolve("parameter-golf", "full", has_gpu=False).config
    assert config.workers == 8
    assert config.to_run_settings(0) == RunSettings()


def test_laptop_parameter_golf() -> None:
    config = laptop().config
    settings = config.to_run_settings(40_000)
    assert config.workers == 2
    assert (settings.stop.steps, settings.stop.seconds) == (None, 15.0)
    assert (settings.model.vocab_size, settings.model.num_layers, settings.model.model_dim) == (1024, 3, 96)
    assert (settings.export.bits_attention, settings.export.bits_mlp, settings.export.bits_embedding) == (6, 6, 8)
    assert (settings.export.keep_float_max_numel, settings.export.scale_floor) == (1024, 0.0)
    assert settings.bytes_code == 40_000


def test_auto_is_laptop_without_a_gpu_and_says_why() -> None:
    without = resolve("parameter-golf", "auto", has_gpu=False)
    assert (without.config.scale, without.origins["scale"]) == ("laptop", "auto: no GPU was found")
    found = resolve("parameter-golf", "auto", has_gpu=True)
    assert (found.config.scale, found.origins["scale"]) == ("full", "auto: a GPU was found")
    assert choose_scale("full", has_gpu=False) == ("full", "chosen at the start")


def test_later_layers_win_and_every_origin_is_known() -> None:
    resolved = laptop([*space(SPACE), Layer.from_sets(["optimizer.matrix_lr=1e-2", "data={folder: /data}"])])
    config = resolved.config
    assert config.optimizer.matrix_lr == 0.01
    assert (config.batch.tokens, config.runtime.compile, config.data.folder) == (8192, "off", "/data")
    assert resolved.origins["optimizer.matrix_lr"] == "--set"
    assert resolved.origins["data.folder"] == "--set"
    assert resolved.origins["batch.tokens"] == "demo.yaml:5"
    assert resolved.origins["runtime.compile"] == "demo.yaml:6"
    preset = load_preset("parameter-golf")
    for path, scale in (("model.num_layers", "laptop"), ("model.vocab_size", "full")):
        line = preset.positions[f"scales.{scale}.{path}"].line
        assert resolved.origins[path] == f"presets/parameter-golf.yaml:{line}"


def test_dotted_and_nested_overrides_are_the_same() -> None:
    assert (
        laptop({"model.num_layers": 2, "workers": 1}).config
        == laptop({"model": {"num_layers": 2}, "workers": 1}).config
    )


def test_a_trial_lies_over_what_was_resolved() -> None:
    base = laptop(space(SPACE))
    trial = base.with_values({"optimizer.matrix_lr": 0.08, "export.bits_mlp": 5}, "trial 7")
    assert (trial.config.optimizer.matrix_lr, trial.config.export.bits_mlp) == (0.08, 5)
    assert trial.origins == {**base.origins, "optimizer.matrix_lr": "trial 7", "export.bits_mlp": "trial 7"}
    assert base.config.export.bits_mlp == 6
    changed = dataclasses.asdict(trial.config.to_run_settings(0))
    assert changed["batch"]["tokens"] == 8192
    with pytest.raises(ConfigError) as caught:
        base.with_values({"export.bits_mlp": 3}, "trial 8")
    assert str(caught.value) == (
        "trial 8 export.bits_mlp: must be 4 to 8 under export.format reference, got 3; "
        "under flat it may be 2 to 8, 16 or 32"
    )


def test_a_file_without_the_key_overrides_nothing() -> None:
    assert laptop(space("name: demo\n")).config == laptop().config
    assert laptop(space("fixed: {}\n")).config == laptop().config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fixed: 3\n", "demo.yaml:1:1 fixed: must be a mapping of settings to values, got 3"),
        ("fixed:\n", "demo.yaml:1:1 fixed: must be a mapping of settings to values, got null"),
        (
            "fixed:\n  optimizer.matrx_lr: 1\n",
            "demo.yaml:2:3 fixed.optimizer.matrx_lr: unknown setting; did you mean optimizer.matrix_lr?",
        ),
        (
            "fixed:\n  optimizer:\n    matrx_lr: 1\n",
            "demo.yaml:3:5 fixed.optimizer.matrx_lr: unknown setting; did you mean optimizer.matrix_lr?",
        ),
        (
            "fixed:\n  stop: 15\n",
            "demo.yaml:2:3 fixed.stop: is a section; name one of its settings: stop.steps, stop.seconds",
        ),
        (
            "fixed:\n  scale: full\n",
            "demo.yaml:2:3 fixed.scale: cannot be varied or overridden; choose the scale where the run is started",
        ),
        (
            "fixed:\n  export: {bits_mlp: 33}\n",
            "demo.yaml:2:12 fixed.export.bits_mlp: must be an integer >= 2 and <= 32, got 33",
        ),
        (
            "fixed:\n  runtime.compile: no\n",
            'demo.yaml:2:3 fixed.runtime.compile: must be one of auto, on, off, got "no"',
        ),
    ],
)
def test_refusals_of_a_file_are_placed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        laptop(space(text))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"model.num_heads": 5},
            "model.num_heads: model_dim / num_heads must be an even integer, got 96 / 5 = 19.2",
        ),
        (
            {"model.num_heads": 32},
            "model.num_heads: model_dim / num_heads must be an even integer, got 96 / 32 = 3",
        ),
        (
            {"model.model_dim": 100},
            "model.model_dim: model_dim / num_heads must be an even integer, got 100 / 4 = 25",
        ),
        ({"model.num_kv_heads": 3}, "model.num_kv_heads: num_kv_heads must divide num_heads (4), got 3"),
        ({"model.num_heads": 3}, "model.num_heads: num_kv_heads must divide num_heads (3), got 2"),
        (
            {"model.mlp_mult": 2.1},
            "model.mlp_mult: mlp_mult * model_dim must be a whole number of channels, got 2.1 * 96 = 201.6; "
            "the nearest is 2.1041666666666665",
        ),
        (
            {"model.mlp_mult": 0.001},
            "model.mlp_mult: mlp_mult * model_dim must be a whole number of channels, got 0.001 * 96 = 0.096; "
            "the nearest is 0.010416666666666666",
        ),
        (
            {"batch.tokens": 5000},
            "batch.tokens: tokens must be a multiple of slices * seq_len (2 * 128 = 256), got 5000; "
            "nearest: 4864 or 5120",
        ),
        (
            {"batch.tokens": 100},
            "batch.tokens: tokens must be a multiple of slices * seq_len (2 * 128 = 256), got 100; nearest: 256",
        ),
        (
            {"batch.seq_len": 384},
            "batch.seq_len: tokens must be a multiple of slices * seq_len (2 * 384 = 768), got 2048; "
            "nearest: 1536 or 2304",
        ),
        ({"workers": 4}, "workers: slices must be a multiple of workers (4), got 2"),
        ({"batch.slices": 1}, "batch.slices: slices must be a multiple of workers (2), got 1"),
        (
            {"batch.val_tokens": 255},
            "batch.val_tokens: val_tokens must be >= slices * seq_len (2 * 128 = 256), got 255",
        ),
        ({"stop.seconds": None}, "stop.seconds: steps and seconds are both null; set at least one"),
        ({"model": {"num_layers": 2}, "model.num_layers": 3}, "model.num_layers: is given twice: 2 and 3"),
    ],
)
def test_refusals_of_combinations(overrides: Mapping[str, Any], message: str) -> None:
    assert refused(overrides) == f"override {message}"


def test_a_broken_rule_is_placed_at_the_value_that_was_written_last() -> None:
    layers = [*space("fixed:\n  batch.tokens: 8192\n"), Layer.from_sets(["batch.slices=6"])]
    rest = "tokens must be a multiple of slices * seq_len (6 * 128 = 768), got 8192; nearest: 7680 or 8448"
    assert refused(layers) == f"--set batch.slices: {rest}"
    assert refused(layers[:0:-1] + layers[:1]) == f"demo.yaml:2:3 fixed.batch.tokens: {rest}"


def test_a_width_that_is_no_binary_fraction_is_whole() -> None:
    assert laptop({"model.mlp_mult": 250 / 96}).config.model.mlp_mult == 250 / 96


def test_unknown_presets_and_scales() -> None:
    for preset, scale, message in (
        ("paramter-golf", "laptop", 'preset: unknown preset "paramter-golf"; did you mean parameter-golf?'),
        ("../x", "laptop", f'preset: unknown preset "../x"; known: {", ".join(preset_names())}'),
        ("parameter-golf", "tiny", 'scale: must be one of auto, full, laptop, got "tiny"'),
    ):
        with pytest.raises(ConfigError) as caught:
            resolve(preset, scale, has_gpu=False)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=c", "a.b", "c"),
        ("a.b=no", "a.b", "no"),
        ("a.b=1e-3", "a.b", 0.001),
        ("a.b=4", "a.b", 4),
        ("a.b=null", "a.b", None),
        ("a.b=''", "a.b", ""),
        ("a.b=x=y", "a.b", "x=y"),
        (" a.b =/data/a b", "a.b", "/data/a b"),
        ("a={b: [1, 2]}", "a", {"b": [1, 2]}),
    ],
)
def test_parse_set(text: str, path: str, value: object) -> None:
    assert parse_set(text) == (path, value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a.b"], '--set: expected PATH=VALUE such as optimizer.matrix_lr=0.02, got "a.b"'),
        (["=3"], '--set: expected PATH=VALUE such as optimizer.matrix_lr=0.02, got "=3"'),
        (["a.b="], "--set a.b: the value is empty; write null, or '' for an empty text"),
        (
            ["a.b=[1"],
            "--set a.b: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
        ),
        (["workers=1", "workers=2"], "--set workers: is given twice: 1 and 2"),
    ],
)
def test_refusals_of_set_before_anything_is_resolved(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Layer.from_sets(texts)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.matrix_rl=1", "--set optimizer.matrix_rl: unknown setting; did you mean optimizer.matrix_lr?"),
        ("optimizer.matrix_lr=fast", '--set optimizer.matrix_lr: must be a number >= 0, got "fast"'),
        ("optimizer.matrix_lr=.nan", "--set optimizer.matrix_lr: must be a number >= 0, got NaN"),
        ("model.num_layers=2.5", "--set model.num_layers: must be an integer >= 1 and <= 1000, got 2.5"),
        ("stop={seconds: 5, minutes: 1}", "--set stop.minutes: unknown setting; known: stop.steps, stop.seconds"),
    ],
)
def test_refusals_of_set(text: str, message: str) -> None:
    assert refused([Layer.from_sets([text])]) == message


@pytest.mark.parametrize("path", schema.field_paths())
def test_absurd_values_are_refused_or_hold_and_never_break(path: str) -> None:
    texts = ("9223372036854775807", "9223372036854775808", "-1", "0", "1.7e308", "1e400", "5e-324", "-.inf", ".nan")
    for text in (*texts, "", "null", "true", "[1]", "{a: 1}", "'\\0'", "x" * 5000):
        refusal = ""
        try:
            laptop([Layer.from_sets([f"{path}={text}"])]).config.to_run_settings(0)
        except ConfigError as error:
            refusal = str(error)
        assert refusal.startswith(f"--set {path}: ") or not refusal, text
