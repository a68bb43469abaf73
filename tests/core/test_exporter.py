"""The flat exporter: what is written is read back bit by bit, under every codec, clip and packing."""

import dataclasses
import math
import zlib

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.codec import codec_module, compress, decompress
from golfray.core.container import Kept, Quantized, read_part, seal, unseal, write_part
from golfray.core.exporter import (
    choose_digits,
    export_state,
    load_artifact,
    parts_of,
    restore,
    store_tensor,
    tensor_rule,
)
from golfray.core.gptq import factor_hessian
from golfray.core.integers import BASES, best_digits, largest_digit, pack_integers, unpack_digits
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import TensorRule, rule_of

LEVELS = {"zlib": 9, "lzma": 6, "zstd": 19, "brotli": 9}
CLIPS = ("quantile", "max", "std", "best")
FLAT = ExportSettings(format="flat", keep_float_max_numel=0, scale_floor=0.0)
NAMES = ("blocks.0.attn.c_q.weight", "blocks.0.mlp.fc.weight", "tok_emb.weight", "blocks.0.attn_scale", "x")


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Odd shapes, empty ones, single columns, rows of zeros, constants, a few huge values, all floating dtypes."""
    shape = draw(st.lists(st.integers(0, 9), min_size=0, max_size=3))
    values = numpy.random.default_rng(draw(st.integers(0, 2**32 - 1))).standard_normal(shape)
    kind = draw(st.sampled_from(["plain", "zeros", "constant", "zero row", "outlier", "tiny"]))
    if kind == "zeros":
        values = numpy.zeros(shape)
    elif kind == "constant":
        values = numpy.full(shape, draw(st.floats(1e-3, 100)) * draw(st.sampled_from([-1, 1])))
    elif kind == "zero row" and values.size and shape:
        values[0] = 0.0
    elif kind == "outlier" and values.size:
        values.flat[0] = 300.0
    elif kind == "tiny":
        values = values * 1e-9
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.float64]))
    return torch.from_numpy(numpy.asarray(values, numpy.float32)).to(dtype)


def rules() -> st.SearchStrategy[dict]:
    """What an override may say of a tensor."""
    return st.fixed_dictionaries(
        {
            "bits": st.sampled_from([2, 3, 4, 5, 6, 7, 8, 16, 32]),
            "clip": st.sampled_from(CLIPS),
            "k": st.floats(0.5, 20),
            "quantile": st.floats(0.01, 1),
            "best_of": st.integers(2, 8),
            "group": st.sampled_from([0, 1, 2, 3, 64, 2**31]),
            "floor": st.sampled_from([0.0, 1 / 127]),
        }
    )


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(tensors(), rules()), max_size=5),
    st.sampled_from(list(LEVELS)),
    st.booleans(),
    st.integers(1, 5),
)
def test_what_is_written_is_read_bit_by_bit(found: list, codec: str, shuffle: bool, digits: int) -> None:
    state = {name: tensor for name, (tensor, _) in zip(NAMES, found, strict=False)}
    overrides = "; ".join(
        f"{name} " + " ".join(f"{key}={value}" for key, value in rule.items())
        for name, (_, rule) in zip(NAMES, found, strict=False)
    )
    export = dataclasses.replace(
        FLAT, codec=codec, codec_level=LEVELS[codec], shuffle=shuffle, overrides=overrides, clip_attention="max"
    )
    stored = {name: store_tensor(name, tensor, tensor_rule(name, tensor, export)) for name, tensor in state.items()}
    artifact = export_state(state, export)
    loaded = load_artifact(artifact)
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert same(loaded[name], restore(stored[name]))
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
    assert artifact == export_state({name: tensor.clone() for name, tensor in state.items()}, export)
    # The packing changes nothing but the bytes.
    packable = {
        name: digits
        for name, kept in stored.items()
        if isinstance(kept, Quantized) and (digits < 5 or not bool((kept.codes.abs() > 1).any()))
    }
    part = write_part(stored, packable, shuffle)
    sealed = seal([part, part], [compress(part, codec, LEVELS[codec])] * 2, codec, shuffle)
    assert unseal(sealed) == ([part, part], shuffle)
    back = read_part(part, shuffle)
    for name, kept in stored.items():
        assert same(restore(back[name]), restore(kept))
        if isinstance(kept, Quantized):
            again = back[name]
            assert isinstance(again, Quantized)
            assert same(again.codes, kept.codes)
            assert same(again.scales, kept.scales)
            assert (again.bits, again.group, again.dtype) == (kept.bits, kept.group, kept.dtype)


@settings(max_examples=80)
@given(tensors(), rules())
def test_an_unclipped_weight_is_off_by_half_a_step_at_most(tensor: torch.Tensor, rule: dict) -> None:
    chosen = TensorRule(**{**rule, "bits": min(rule["bits"], 8), "clip": "max"})
    stored = store_tensor("w", tensor, chosen)
    assert isinstance(stored, Quantized)
    limit = 2 ** (chosen.bits - 1) - 1
    assert not stored.codes.numel() or int(stored.codes.abs().max()) <= limit
    rows = stored.codes.shape[0] if stored.codes.ndim > 1 else 1
    values = tensor.float().reshape(rows, tensor.numel() // max(rows, 1))
    back = restore(dataclasses.replace(stored, dtype="float32")).reshape(values.shape)
    groups = values.split(chosen.group or max(values.shape[1], 1), dim=1)
    for group, found, step in zip(
        groups, back.split(chosen.group or max(values.shape[1], 1), dim=1), stored.scales.float().T, strict=True
    ):
        # A step is rounded to float16, by 2^-11 of it or 2^-25, and so may clip the largest weight by limit times that.
        slack = limit * (step * 2**-11 + 2**-25) + 1e-12
        assert bool(((group - found).abs() <= step[:, None] / 2 * 1.0001 + slack[:, None]).all())


def test_zeros_columns_and_small_weights() -> None:
    for clip in CLIPS:
        rule = TensorRule(6, clip, 12.85, 1.0, 5, 0, 0.0)
        zeros = store_tensor("w", torch.zeros(3, 4), rule)
        assert isinstance(zeros, Quantized)
        assert (zeros.codes.any(), zeros.scales.tolist()) == (False, [[0.0]] * 3)
        column = restore(store_tensor("w", torch.tensor([[2.0], [-4.0], [0.0]]), rule))
        assert column.flatten().tolist() == pytest.approx([2.0, -4.0, 0.0], rel=0.25)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("bits", [2, 8, 16, 32])
def test_weights_that_are_not_finite_are_refused(bad: float, bits: int) -> None:
    tensor = torch.ones(4, 4)
    tensor[2, 1] = bad
    with pytest.raises(ValueError, match=r"blocks\.0\.mlp\.fc\.weight is not finite as float"):
        export_state({"blocks.0.mlp.fc.weight": tensor}, dataclasses.replace(FLAT, bits_mlp=bits))


@pytest.mark.parametrize(("bits", "largest"), [(16, 1e5), (8, 1e7), (2, 1e5)])
def test_weights_beyond_float16_are_refused(bits: int, largest: float) -> None:
    with pytest.raises(ValueError, match=r"x is not finite as float16"):
        export_state({"x": torch.full((2, 2), largest)}, dataclasses.replace(FLAT, bits_embedding=bits))


def test_small_tensors_stay_floating_point_by_their_class() -> None:
    state = {
        "skip_weights": torch.full((2, 2), 1.0001),
        "small.weight": torch.full((2, 2), 1.0001).bfloat16(),
        "double": torch.ones(2).double(),
        "count": torch.arange(3),
        "flag": torch.tensor([True, False]),
    }
    export = dataclasses.replace(FLAT, keep_float_max_numel=100)
    kinds = {}
    for name, tensor in state.items():
        stored = store_tensor(name, tensor, tensor_rule(name, tensor, export))
        assert isinstance(stored, Kept)
        kinds[name] = stored.values.dtype
    assert kinds == {
        "skip_weights": torch.float32,
        "small.weight": torch.float16,
        "double": torch.float16,
        "count": torch.int64,
        "flag": torch.bool,
    }
    loaded = load_artifact(export_state(state, export))
    assert {name: tensor.dtype for name, tensor in loaded.items()} == {n: t.dtype for n, t in state.items()}
    assert torch.equal(loaded["skip_weights"], state["skip_weights"])


def test_rules_come_from_class_size_and_overrides_in_order() -> None:
    export = dataclasses.replace(
        FLAT,
        keep_float_max_numel=10,
        bits_attention=5,
        bits_mlp=6,
        bits_embedding=7,
        bits_control=16,
        bits_small=8,
        clip_mlp="std",
        clip_k_mlp=11.5,
        overrides="blocks.1.* bits=3 group=64; *.c_k.weight bits=4;tok_emb.weight clip=best best_of=3 floor=0.5",
    )

    def rule(name: str, elements: int = 100, control: bool = False) -> TensorRule:
        return rule_of(name, elements, control, export)

    assert [rule(name).bits for name in NAMES] == [5, 6, 7, 7, 7]
    assert rule(NAMES[1]) == TensorRule(6, "std", 11.5, export.clip_quantile, 5, 0, 0.0)
    assert (rule("x", 10).bits, rule("x", 10, control=True).bits, rule("x", 11, control=True).bits) == (8, 16, 7)
    assert (rule("blocks.1.attn.c_k.weight").bits, rule("blocks.1.attn.c_k.weight").group) == (4, 64)
    assert (rule("blocks.1.attn_scale", 4, control=True).bits, rule("blocks.0.attn.c_k.weight").bits) == (3, 4)
    assert rule("tok_emb.weight") == TensorRule(7, "best", 20.0, export.clip_quantile, 3, 0, 0.5)


@settings(max_examples=100)
@given(st.lists(st.integers(-128, 127), max_size=40), st.integers(1, 4))
def test_integers_survive_any_packing(values: list[int], digits: int) -> None:
    codes = numpy.array(values, numpy.int8)
    packed, beyond = pack_integers(codes, digits)
    assert len(packed) == -(-len(values) // digits)
    flat, missing = unpack_digits(packed, len(values), digits)
    assert missing.sum() == len(beyond) == sum(abs(v) > largest_digit(digits) for v in values)
    flat[missing] = numpy.frombuffer(beyond, numpy.int8)
    assert flat.tolist() == values


def test_three_values_go_five_to_a_byte() -> None:
    codes = numpy.array([-1, 0, 1, 1, 1, 0, -1], numpy.int8)
    packed, beyond = pack_integers(codes, 5)
    assert (len(packed), beyond) == (2, b"")
    assert unpack_digits(packed, 7, 5)[0].tolist() == codes.tolist()


@pytest.mark.parametrize(("codec", "level"), [("zlib", 9), ("zstd", 19), ("brotli", 11)])
def test_the_packing_chosen_is_the_smallest_measured(codec: str, level: int) -> None:
    """Of all packings compressed in full; the choice is made by Huffman codes, so a little is allowed."""
    draw = numpy.random.default_rng(5)
    for bits, spread in ((2, 0.6), (4, 2.4), (6, 2.4), (8, 25.0)):
        limit = 2 ** (bits - 1) - 1
        codes = numpy.clip(numpy.rint(draw.standard_normal(30_000) * spread), -limit, limit).astype(numpy.int8)
        sizes = {
            digits: len(compress(b"".join(pack_integers(codes, digits)), codec, level))
            for digits in BASES
            if digits < 5 or numpy.abs(codes).max() <= 1
        }
        assert sizes[best_digits([codes], codec, level)] <= min(sizes.values()) * 1.01, (bits, spread, sizes)


def test_integers_without_a_gain_stay_one_a_byte() -> None:
    even = numpy.random.default_rng(1).integers(-128, 128, 5000).astype(numpy.int8)
    for codec in LEVELS:
        assert best_digits([even], codec, LEVELS[codec]) == 1
    assert best_digits([numpy.zeros(0, numpy.int8)], "zlib", 9) == 1


@pytest.mark.parametrize("codec", LEVELS)
def test_codecs_give_back_what_they_were_given(codec: str) -> None:
    for content in (b"", b"a", bytes(100_000), numpy.random.default_rng(1).bytes(70_000)):
        assert decompress(compress(content, codec, LEVELS[codec]), codec) == content


def test_a_missing_codec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match="codec zstd needs the package zstandard: ") as missing:
        export_state({}, dataclasses.replace(FLAT, codec="zstd"))
    # Into the Python that runs, be it that of a clone's .venv or of an environment golfray was installed into.
    assert str(missing.value).endswith(f"{sys.executable} -m pip install zstandard")


def test_the_first_line_records_codec_and_version() -> None:
    state = {"x": torch.ones(3, 5)}
    for codec, level in LEVELS.items():
        artifact = export_state(state, dataclasses.replace(FLAT, codec=codec, codec_level=level))
        words = artifact.partition(b"\n")[0].decode().split(" ")
        assert words[:3] == ["golfray-flat", "2", codec]
        known = getattr(codec_module(codec), "__version__", "") if codec in ("zstd", "brotli") else words[3]
        assert words[3] == known != ""


def test_the_content_is_these_very_bytes_on_every_machine() -> None:
    """Written by hand from the container's description."""
    state = {
        "tok_emb.weight": torch.tensor([[1.0, -3.0, 0.5], [0.0, 0.0, 0.0]]),
        "skip_weights": torch.tensor([1.0, -2.0]),
        "small": torch.tensor([0.5]).bfloat16(),
    }
    export = dataclasses.replace(
        FLAT, bits_embedding=3, clip_embedding="max", keep_float_max_numel=2, overrides="x bits=8"
    )
    tensors = {name: store_tensor(name, tensor, tensor_rule(name, tensor, export)) for name, tensor in state.items()}
    table = (
        b'[["tok_emb.weight",[2,3],"float32",3,0,2],["skip_weights",[2],"float32","float32"],'
        b'["small",[1],"bfloat16","float16"]]'
    )
    codes = bytes([8 * 16 + 4, 7 * 16 + 7, 7 * 16 + 7])
    steps = bytes([0x00, 0x3C, 0x00, 0x00])
    floats = bytes([0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0])
    expected = len(table).to_bytes(4, "little") + table + codes + steps + floats + bytes([0x00, 0x38])
    assert write_part(tensors, {"tok_emb.weight": 2}, False) == expected
    # With the planes of steps and of kept tensors shuffled: bytes at the same place of each number beside each other.
    steps = b"BSHF\2" + bytes([0x00, 0x00, 0x3C, 0x00])
    floats = b"BSHF\4" + bytes([0, 0, 0, 0, 0, 0x38, 0x80, 0, 0x3F, 0xC0])
    assert write_part(tensors, {"tok_emb.weight": 2}, True) == expected[: 4 + len(table)] + codes + steps + floats
    # A part a class, and a line that says how long each is.
    artifact = export_state({**state, "blocks.0.mlp.fc.weight": torch.ones(1, 3)}, export)
    line, _, packed = artifact.partition(b"\n")
    lengths = [tuple(map(int, pair.split(b":"))) for pair in line.split(b" ")[5].split(b",")]
    parts, shuffled = unseal(artifact)
    assert [length for length, _ in lengths] == [len(part) for part in parts]
    assert sum(size for _, size in lengths) == len(packed)
    assert [list(read_part(part, shuffled)) for part in parts] == [list(tensors), ["blocks.0.mlp.fc.weight"]]
    assert int(line.split(b" ")[6], 16) == zlib.crc32(line[:-8] + b"".join(parts))


def test_gptq_beats_rounding_where_inputs_are_correlated() -> None:
    draw = torch.Generator().manual_seed(3)
    mixing = torch.randn(24, 24, generator=draw)
    inputs = torch.randn(500, 24, generator=draw) @ mixing
    weights = torch.randn(16, 24, generator=draw)
    factor = factor_hessian(inputs.T @ inputs, 0.01)
    for bits, group in ((3, 0), (4, 8), (4, 7)):
        rule = TensorRule(bits, "max", 0.0, 1.0, 5, group, 0.0)
        nearest = restore(store_tensor("w", weights, rule))
        compensated = restore(store_tensor("w", weights, rule, factor))
        loss = [float((inputs @ (weights - found).T).square().mean()) for found in (nearest, compensated)]
        assert loss[1] < 0.7 * loss[0]


def test_gptq_with_independent_inputs_is_rounding() -> None:
    weights = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    rule = TensorRule(4, "std", 6.0, 1.0, 5, 5, 0.0)
    plain, gptq = (store_tensor("w", weights, rule, factor) for factor in (None, factor_hessian(torch.eye(12), 0.01)))
    assert same(restore(plain), restore(gptq))


def test_gptq_without_hessians_and_with_bad_ones() -> None:
    state = {"blocks.0.mlp.fc.weight": torch.randn(4, 6)}
    export = dataclasses.replace(FLAT, gptq=True)
    with pytest.raises(ValueError, match="needs Hessians"):
        export_state(state, export)
    for bad in (torch.full((6, 6), math.nan), -torch.eye(6)):
        with pytest.raises(ValueError, match=r"Hessian is not positive at damping 0\.01"):
            export_state(state, export, {"blocks.0.mlp.fc.weight": bad})
    dead = load_artifact(export_state(state, export, {"blocks.0.mlp.fc.weight": torch.zeros(6, 6)}))
    assert not dead["blocks.0.mlp.fc.weight"].any()


def test_packed_integers_of_a_bell_are_smaller() -> None:
    state = {"blocks.0.mlp.fc.weight": torch.randn(512, 256, generator=torch.Generator().manual_seed(1))}
    export = dataclasses.replace(FLAT, bits_mlp=6, clip_mlp="std")
    tensors = {name: store_tensor(name, tensor, tensor_rule(name, tensor, export)) for name, tensor in state.items()}
    packed = len(compress(write_part(tensors, choose_digits(tensors, export), False), "zlib", 9))
    assert packed < 0.98 * len(compress(write_part(tensors, {}, False), "zlib", 9))


def test_tensors_of_a_class_and_width_have_as_many_integers_a_byte() -> None:
    draw = torch.Generator().manual_seed(1)
    names = ("blocks.0.mlp.fc.weight", "blocks.1.mlp.fc.weight", "blocks.2.mlp.fc.weight", "blocks.0.attn.c_q.weight")
    state = {name: torch.randn(64, 96, generator=draw) for name in names}
    state["blocks.1.mlp.fc.weight"] *= 1e-3
    export = dataclasses.replace(FLAT, bits_mlp=6, bits_attention=8, overrides="blocks.2.* bits=3 clip=max")
    tensors = {name: store_tensor(name, tensor, tensor_rule(name, tensor, export)) for name, tensor in state.items()}
    parts = parts_of(tensors)
    assert [sorted(part) for part in parts] == [[names[3]], sorted(names[:3])]
    digits = choose_digits(parts[1], export)
    assert digits[names[0]] == digits[names[1]]
    for width, some in ((6, names[:2]), (3, names[2:3])):
        codes = [tensors[name].codes.numpy() for name in some]  # type: ignore[union-attr]
        assert {digits[name] for name in some} == {best_digits(codes, export.codec, export.codec_level)}, width


def test_planes_that_are_not_put_together_as_told_are_refused() -> None:
    stored: dict[str, Quantized | Kept] = {"x": Kept(torch.arange(6.0), "float32")}
    part = write_part(stored, {}, True)
    assert torch.equal(read_part(part, True)["x"].values, torch.arange(6.0))  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="planes of 24 bytes are not shuffled by 4"):
        read_part(part.replace(b"BSHF", b"bshf"), True)
    with pytest.raises(ValueError, match="belong to no tensor"):
        read_part(part, False)
