"""What the record scripts compute, reproduced: clips, GPTQ, byte shuffle (numbers from the scripts themselves)."""

import json
import math
import pathlib

import numpy
import pytest
import torch

from golfray.core.clip import column_scales
from golfray.core.codec import shuffle_bytes, unshuffle_bytes
from golfray.core.container import Quantized
from golfray.core.exporter import restore, store_tensor
from golfray.core.gptq import factor_hessian, gptq_round
from golfray.core.tensor_rules import TensorRule

VECTORS = json.loads((pathlib.Path(__file__).parent / "frontier_export_vectors.json").read_text())
NEAREST = TensorRule(bits=6, clip="std", k=12.85, quantile=1.0, best_of=5, group=0, floor=0.0)
BEST = TensorRule(bits=6, clip="best", k=0.0, quantile=1.0, best_of=5, group=0, floor=1 / 31)


def formula(k: int, scale: float, *shape: int) -> torch.Tensor:
    """S(k, scale, 0) of the vectors."""
    j = numpy.arange(math.prod(shape), dtype=numpy.float64)
    values = scale * numpy.sin(0.37 * (k + 1) + 1.13 * j + 0.000011 * j * j)
    return torch.from_numpy(values.astype(numpy.float32)).reshape(shape)


@pytest.fixture(scope="module")
def hessian() -> torch.Tensor:
    inputs = formula(24, 1.0, 40, 12)
    inputs = inputs + 0.5 * torch.roll(inputs, 1, dims=1)
    inputs[:, 5] = 0.0
    return inputs.T @ inputs / 4


def stored(weights: torch.Tensor, rule: TensorRule, hessian: torch.Tensor | None = None) -> Quantized:
    found = store_tensor("w", weights, rule, None if hessian is None else factor_hessian(hessian, 0.01))
    assert isinstance(found, Quantized)
    return found


def test_kstd_int6() -> None:
    outputs, found = VECTORS["kstd_int6"], stored(formula(23, 0.3, 4, 16), NEAREST)
    assert found.codes.flatten().tolist() == outputs["q"]
    assert found.scales.float().flatten().tolist() == outputs["scale_fp16_as_f32"]
    assert restore(found).flatten().tolist() == pytest.approx(outputs["dequant"], abs=1e-6)


@pytest.mark.parametrize(("name", "k"), [("gptq_k12.85_block5", 12.85), ("gptq_k3.0_block5", 3.0)])
def test_gptq(name: str, k: float, hessian: torch.Tensor) -> None:
    outputs, weights = VECTORS[name], formula(25, 0.2, 3, 12)
    found = stored(weights, TensorRule(6, "std", k, 1.0, 5, 0, 0.0), hessian)
    assert found.codes.flatten().tolist() == outputs["q"]
    assert found.scales.float().flatten().tolist() == outputs["scale_fp16_as_f32"]
    assert restore(found).flatten().tolist() == pytest.approx(outputs["dequant"], abs=1e-6)
    assert found.codes[:, 5].tolist() == [0, 0, 0]
    steps = column_scales(found.scales, 12, 0)
    for block in (1, 5, 7, 128):
        whole = gptq_round(weights, steps, 6, factor_hessian(hessian, 0.01), block)
        assert torch.equal(whole.to(torch.int8), found.codes)


@pytest.mark.parametrize(("size", "scale"), [("small", 0.2), ("large", 3.0)])
def test_gptq_best_of_5(size: str, scale: float, hessian: torch.Tensor) -> None:
    outputs, found = VECTORS["gptq_best_of_5"], stored(formula(25, scale, 3, 12), BEST, hessian)
    assert found.codes.flatten().tolist() == outputs[f"{size}_q"]
    assert found.scales.float().flatten().tolist() == outputs[f"{size}_scale"]


@pytest.mark.parametrize(
    ("name", "rule"), [("int6_rowmax", TensorRule(6, "max", 0.0, 1.0, 5, 0, 1e-12)), ("int6_best_of_5", BEST)]
)
def test_older_clips(name: str, rule: TensorRule) -> None:
    outputs, found = VECTORS[name], stored(formula(26, 2.0, 3, 40), rule)
    assert found.codes.flatten().tolist() == outputs["q"]
    assert found.scales.float().flatten().tolist() == outputs["scale"]


def test_byte_shuffle() -> None:
    outputs, data = VECTORS["byte_shuffle"], bytes(range(11))
    assert list(shuffle_bytes(data, 2)) == outputs["out"]
    assert list(shuffle_bytes(b"a", 2)) == outputs["one_byte_input"]
    assert list(shuffle_bytes(bytes(range(6)), 2)) == outputs["even"]
    for stride in (1, 2, 3, 4, 8):
        for length in range(20):
            assert unshuffle_bytes(shuffle_bytes(bytes(range(length)), stride)) == bytes(range(length))
