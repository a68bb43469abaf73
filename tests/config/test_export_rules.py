"""What the export settings allow together: each refusal names the setting, the value and the way out."""

import pytest

from golfray.config.errors import ConfigError
from golfray.config.resolve import resolve
from golfray.core.settings import ExportSettings


def resolved(**export: object) -> ExportSettings:
    overrides = {f"export.{name}": value for name, value in export.items()}
    return resolve("parameter-golf", "full", overrides, has_gpu=False).config.to_run_settings(0).export


def test_the_full_preset_is_the_reference_format_and_the_defaults() -> None:
    assert resolved() == ExportSettings()


@pytest.mark.parametrize(
    ("export", "message"),
    [
        (
            {"codec": "brotli"},
            'override export.codec: codec "brotli" is not for export.format reference, which has "zlib"; '
            "set format to flat",
        ),
        ({"gptq": True}, "export.gptq: gptq true is not for export.format reference, which has false"),
        ({"overrides": "tok* bits=8"}, "export.overrides: overrides .* is not for export.format reference"),
        ({"bits_mlp": 3}, "export.bits_mlp: must be 4 to 8 under export.format reference, got 3"),
        ({"bits_mlp": 16}, "export.bits_mlp: must be 4 to 8 under export.format reference, got 16"),
        ({"bits_small": 32}, "export.bits_small: bits_small 32 is not for export.format reference"),
        ({"format": "flat", "bits_mlp": 9}, "export.bits_mlp: must be 2 to 8, 16 or 32, got 9"),
        ({"format": "flat", "bits_control": 12}, "export.bits_control: must be 2 to 8, 16 or 32, got 12"),
        ({"format": "flat", "codec_level": 10}, "export.codec_level: codec_level of zlib must be 0 to 9, got 10"),
        (
            {"format": "flat", "codec": "zstd", "codec_level": 0},
            "export.codec_level: codec_level of zstd must be 1 to 22, got 0",
        ),
        (
            {"format": "flat", "codec_level": 12, "codec": "brotli"},
            "codec_level of brotli must be 0 to 11, got 12",
        ),
        ({"codec_level": 11}, "export.codec_level: codec_level of zlib must be 0 to 9, got 11"),
        ({"format": "flat", "overrides": "tok*"}, "export.overrides: must be such as .*'tok\\*' changes nothing"),
        ({"format": "flat", "overrides": "tok* bit=8"}, "'bit=8' is none of bits, clip, k,"),
        ({"format": "flat", "overrides": "tok* bits=9"}, "bits 9 of 'tok\\*' is out of range"),
        ({"format": "flat", "overrides": "tok* k=nan"}, "k nan of 'tok\\*' is out of range"),
        ({"format": "flat", "overrides": "tok* clip=mean"}, "is out of range"),
        ({"format": "flat", "overrides": "tok* bits"}, "invalid literal for int"),
        (
            {"format": "flat", "clip_mlp": "std"},
            "export.clip_mlp: scale_floor must be 0 where a clip is std, or the floor and not k decides the steps; "
            "got 0.00787",
        ),
        (
            {"format": "flat", "overrides": "tok* clip=std k=20; *.mlp.* clip=std floor=0"},
            "export.overrides: 'tok\\*' must say floor=0 beside clip=std, or scale_floor and not k decides the steps",
        ),
        ({"clip_mlp": "std"}, 'export.clip_mlp: clip_mlp "std" is not for export.format reference'),
        (
            {"format": "flat", "gptq": True, "gptq_reserve_seconds": 600},
            r"export.gptq_reserve_seconds: gptq_reserve_seconds must be < stop.seconds \(600\), .* got 600",
        ),
        ({"search": 200}, "export.search: search 200 is not for export.format reference, which has null"),
        ({"format": "flat", "search": 0}, "export.search: must be an integer >= 1 or null, got 0"),
        (
            {"format": "flat", "search": 200, "bits_mlp": 6},
            "export.bits_mlp: is what export.search chooses; leave it out, or set export.search to null",
        ),
        ({"format": "flat", "search": 200, "codec": "lzma"}, "export.codec: is what export.search chooses"),
    ],
)
def test_refusals(export: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(**export)


@pytest.mark.parametrize(
    "export",
    [
        {"scale_floor": 0.0, "clip_mlp": "std"},
        {"scale_floor": 0.0, "overrides": "tok* clip=std"},
        {"overrides": "tok* clip=std floor=0"},
        {"gptq": True, "gptq_reserve_seconds": 599},
        {"gptq": False, "gptq_reserve_seconds": 600},
    ],
)
def test_floors_and_reserves_that_leave_room(export: dict) -> None:
    assert resolved(format="flat", **export) == ExportSettings(format="flat", **export)


def test_a_search_says_what_it_does_not_choose_itself() -> None:
    export = {"format": "flat", "search": 200, "gptq": True, "bits_small": 32, "overrides": "tok* bits=8"}
    assert resolved(**export) == ExportSettings(**export)
    # What the scale's own part of the preset says is where a search begins.
    overrides = {"export.format": "flat", "export.search": 200}
    assert resolve("parameter-golf", "laptop", overrides, has_gpu=False).config.export.bits_mlp == 6


def test_without_a_clock_nothing_is_reserved_of_it() -> None:
    overrides = {"export.format": "flat", "export.gptq": True, "export.gptq_reserve_seconds": 9, "stop.seconds": None}
    assert resolve("parameter-golf", "full", overrides, has_gpu=False).config.export.gptq


def test_a_late_stack_setting_is_allowed() -> None:
    late = {
        "format": "flat",
        "bits_attention": 6,
        "bits_mlp": 6,
        "bits_embedding": 7,
        "bits_control": 16,
        "clip_attention": "std",
        "clip_mlp": "std",
        "clip_embedding": "std",
        "clip_k_attention": 13.0,
        "clip_k_mlp": 12.0,
        "clip_k_embedding": 15.0,
        "scale_floor": 0.0,
        "gptq": True,
        "codec": "brotli",
        "codec_level": 11,
        "shuffle": True,
        "overrides": "*.attn.c_k.* bits=8 clip=max; blocks.?.mlp.proj.* k=11.5 group=64; tok_emb.weight bits=16",
    }
    assert resolved(**late) == ExportSettings(**late)  # type: ignore[arg-type]
