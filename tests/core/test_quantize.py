"""Weights to integers and back: properties over shapes and values, and what each knob touches."""

import io
import pathlib

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.artifact import pack_artifact
from golfray.core.model import is_control
from golfray.core.quantize import dequantize_state, quantize_state, quantize_tensor, row_quantile, tensor_bits
from golfray.core.settings import ExportSettings

ALL = ExportSettings(keep_float_max_numel=0, scale_floor=0.0)


@st.composite
def tensors(draw, dimensions: tuple[int, ...] = (1, 2, 3)) -> torch.Tensor:
    """Odd shapes, single columns, rows of zeros, constants, a few huge values."""
    shape = draw(st.lists(st.integers(1, 9), min_size=min(dimensions), max_size=max(dimensions)))
    values = numpy.random.default_rng(draw(st.integers(0, 2**32 - 1))).standard_normal(shape)
    kind = draw(st.sampled_from(["plain", "zeros", "constant", "zero row", "outlier"]))
    if kind == "zeros":
        values[:] = 0.0
    elif kind == "constant":
        values[:] = draw(st.floats(1e-3, 100)) * draw(st.sampled_from([-1, 1]))
    elif kind == "zero row":
        values[0] = 0.0
    elif kind == "outlier":
        values.flat[0] = 300.0
    return torch.from_numpy((values * draw(st.sampled_from([1e-2, 1.0, 50.0]))).astype(numpy.float32))


@settings(max_examples=150)
@given(tensors(), st.integers(4, 8), st.sampled_from([0.0, 1 / 127]))
def test_round_trip_is_off_by_half_a_step_at_most(tensor: torch.Tensor, bits: int, floor: float) -> None:
    export = ExportSettings(
        bits_attention=bits, keep_float_max_numel=0, scale_floor=floor, clip_quantile=1.0, bits_mlp=4, bits_embedding=4
    )
    name = "blocks.0.attn.c_q.weight"
    container, payload = quantize_state({name: tensor}, export)
    integers, scale = container["quantized"][name], container["scales"][name]
    limit = 2 ** (bits - 1) - 1
    assert integers.dtype == torch.int8
    assert int(integers.abs().max()) <= limit
    assert payload["integers"] == tensor.numel()
    back = dequantize_state(container)[name]
    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    # The integers were made with the float32 step; the stored float16 step is off by up to 2^-11, or half of 2^-24.
    if scale.dtype == torch.float16:
        step = scale.float().view(-1, *[1] * (tensor.ndim - 1))
        slack = limit * (step * 2**-11 + 2**-25)
        exact_step = step * (1 + 2**-11) + 2**-25
    else:
        slack, exact_step = 0.0, scale
    assert bool(((back - tensor).abs() <= exact_step / 2 * 1.0001 + slack).all())


@settings(max_examples=60)
@given(tensors((2,)), st.integers(4, 8))
def test_rows_do_not_know_of_each_other(matrix: torch.Tensor, bits: int) -> None:
    integers, scales = quantize_tensor(matrix, bits, ALL)
    for row in range(matrix.shape[0]):
        alone, scale = quantize_tensor(matrix[row : row + 1], bits, ALL)
        assert torch.equal(alone[0], integers[row])
        assert torch.equal(scale[0], scales[row])


def test_constants_zeros_and_single_columns() -> None:
    zeros, scale = quantize_tensor(torch.zeros(3, 4), 6, ALL)
    assert not zeros.any()
    assert scale.tolist() == [1.0, 1.0, 1.0]
    column, scale = quantize_tensor(torch.tensor([[2.0], [-4.0], [0.0]]), 6, ALL)
    assert column.flatten().tolist() == [31, -31, 0]
    vector, scale = quantize_tensor(torch.zeros(5), 8, ALL)
    assert (vector.tolist(), scale.item(), scale.dtype, scale.shape) == ([0] * 5, 1.0, torch.float32, ())
    floored, scale = quantize_tensor(torch.full((1, 3), 0.01), 8, ExportSettings())
    assert floored.tolist() == [[1, 1, 1]]
    assert scale.tolist() == [numpy.float16(1 / 127)]


def test_half_rounds_to_even() -> None:
    row = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, 127.0]])
    assert quantize_tensor(row, 8, ExportSettings(clip_quantile=1.0))[0].tolist() == [[0, 2, 2, 0, -2, 127]]


def test_quantile_of_many_elements_in_parts() -> None:
    rows = torch.rand(5, 2**22)
    rows[:, 0] = torch.arange(5.0) + 10.0
    assert row_quantile(rows, 1.0).tolist() == [10.0, 11.0, 12.0, 13.0, 14.0]
    small = torch.rand(7, 30)
    assert torch.equal(row_quantile(small, 0.9), torch.quantile(small, 0.9, dim=1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("keep", [0, 1000])
def test_weights_that_are_not_finite_are_refused(bad: float, keep: int) -> None:
    tensor = torch.ones(4, 4)
    tensor[2, 1] = bad
    with pytest.raises(ValueError, match=r"blocks\.0\.mlp\.fc\.weight.*not finite"):
        quantize_state({"blocks.0.mlp.fc.weight": tensor}, ExportSettings(keep_float_max_numel=keep))


def test_kept_tensors_by_name_and_dtype() -> None:
    state = {
        "skip_weights": torch.full((2, 2), 1.0001).bfloat16(),
        "small.weight": torch.full((2, 2), 1.0001),
        "half.weight": torch.ones(2, 2).half(),
        "double.weight": torch.ones(2, 2).double(),
        "count": torch.arange(3),
    }
    container, _ = quantize_state(state, ExportSettings())
    kept = {name: tensor.dtype for name, tensor in container["passthrough"].items()}
    assert kept == {
        "skip_weights": torch.float32,
        "small.weight": torch.float16,
        "half.weight": torch.float16,
        "double.weight": torch.float64,
        "count": torch.int64,
    }
    assert container["passthrough_orig_dtypes"] == {"small.weight": "float32"}
    back = dequantize_state(container)
    assert {name: back[name].dtype for name in state} == {
        **{n: t.dtype for n, t in state.items()},
        "skip_weights": torch.float32,
    }


@pytest.mark.parametrize(
    ("state", "absent"),
    [
        ({}, {"qmeta", "passthrough_orig_dtypes"}),
        ({"skip_weights": torch.ones(0, 4)}, {"qmeta", "passthrough_orig_dtypes"}),
        ({"vector": torch.ones(70_000)}, {"qmeta", "passthrough_orig_dtypes"}),
        ({"small": torch.ones(3)}, {"qmeta"}),
        ({"wide": torch.ones(300, 300)}, {"passthrough_orig_dtypes"}),
    ],
)
def test_empty_parts_are_left_out_and_load(state: dict, absent: set) -> None:
    container, _ = quantize_state(state, ExportSettings())
    assert {"qmeta", "passthrough_orig_dtypes"} - set(container) == absent
    back = dequantize_state(container)
    assert {name: tensor.shape for name, tensor in back.items()} == {name: t.shape for name, t in state.items()}


@pytest.fixture(scope="module")
def trained_state(trained_folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return torch.load(trained_folder / "checkpoint.pt", weights_only=True)


CLASSES = {"bits_attention": ".attn.", "bits_mlp": ".mlp.", "bits_embedding": "tok_emb"}


@pytest.mark.parametrize("knob", CLASSES)
def test_each_knob_changes_the_integers_of_its_class_only(knob: str, trained_state) -> None:
    base = ExportSettings(keep_float_max_numel=256, scale_floor=0.0)
    before, _ = quantize_state(trained_state, base)
    after, _ = quantize_state(trained_state, ExportSettings(keep_float_max_numel=256, scale_floor=0.0, **{knob: 5}))
    assert list(before["quantized"]) == list(after["quantized"])
    assert any(CLASSES[knob] in name for name in before["quantized"])
    for name, integers in before["quantized"].items():
        same = torch.equal(integers, after["quantized"][name])
        assert same == (CLASSES[knob] not in name)
        assert torch.equal(before["scales"][name], after["scales"][name]) == same
    assert all(torch.equal(tensor, after["passthrough"][name]) for name, tensor in before["passthrough"].items())


@pytest.mark.parametrize("knob", CLASSES)
def test_fewer_bits_are_fewer_bytes(knob: str, trained_state) -> None:
    sizes = []
    for bits in (4, 5, 6, 7, 8):
        export = ExportSettings(keep_float_max_numel=256, scale_floor=0.0, **{knob: bits})
        container, payload = quantize_state(trained_state, export)
        sizes.append(len(pack_artifact(container, export.codec_level)))
        saved = io.BytesIO()
        torch.save(container, saved)
        assert sum(payload.values()) < len(saved.getvalue())
    assert sizes == sorted(set(sizes))


def test_every_trained_tensor_has_a_class(trained_state) -> None:
    export = ExportSettings(bits_attention=5, bits_mlp=6, bits_embedding=7)
    bits = {name: tensor_bits(name, export) for name in trained_state if not is_control(name)}
    assert 8 not in bits.values()
    assert set(bits.values()) == {5, 6, 7}
