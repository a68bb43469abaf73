"""How many bytes whole models take: against the reference's container, and against the closed form of section 3.6."""

import itertools
import math

import pytest
import torch

from golfray.core.artifact import pack_artifact
from golfray.core.codec import compress
from golfray.core.container import Kept, Quantized, seal, write_part
from golfray.core.exporter import choose_digits, export_state, parts_of
from golfray.core.quantize import quantize_state
from golfray.core.settings import ExportSettings
from golfray.selftest.training import formula_model

BASELINE_SHAPE = {
    "vocab_size": 1024,
    "num_layers": 9,
    "model_dim": 512,
    "num_heads": 8,
    "num_kv_heads": 4,
    "mlp_mult": 2,
    "tie_embeddings": True,
    "tied_embed_init_std": 0.005,
    "logit_softcap": 30.0,
    "rope_base": 10000.0,
    "qk_gain_init": 1.5,
}


@pytest.mark.slow
def test_the_flat_container_is_smaller_for_the_same_int8_content() -> None:
    container, payload = quantize_state(dict(formula_model(BASELINE_SHAPE, 0.02).state_dict()), ExportSettings())
    reference = pack_artifact(container, 9)
    assert sum(payload.values()) == 17_178_912
    assert len(reference) == pytest.approx(1_161_302, rel=0.005)
    tensors: dict[str, Quantized | Kept] = {
        name: Quantized(codes, container["scales"][name][:, None], 8, 0, "float32")
        for name, codes in container["quantized"].items()
    }
    tensors |= {name: Kept(values, "float32") for name, values in container["passthrough"].items()}
    parts = [write_part(part, choose_digits(part, ExportSettings()), False) for part in parts_of(tensors)]
    assert 17_178_912 <= sum(map(len, parts)) < 17_178_912 + 6000 < 17_224_025
    assert len(seal(parts, [compress(part, "zlib", 9) for part in parts], "zlib", False)) < len(reference)


def gaussian_bits(bits: int, k: float) -> float:
    """Entropy, in bits, of a standard normal rounded to steps of k / (2^(bits-1) - 1)."""
    limit = 2 ** (bits - 1) - 1
    edges = [-math.inf, *((q + 0.5) * k / limit for q in range(-limit, limit)), math.inf]
    below = [0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges]
    shares = [high - low for low, high in itertools.pairwise(below)]
    return -sum(share * math.log2(share) for share in shares if share > 0)


@pytest.mark.parametrize(
    ("bits", "k", "expected"),
    [(6, 12.85, 3.328), (6, 12, 3.425), (6, 11.5, 3.486), (7, 15, 4.121), (8, 20, 4.715), (5, 12.85, 2.313)],
)
def test_the_closed_form(bits: int, k: float, expected: float) -> None:
    assert gaussian_bits(bits, k) == pytest.approx(expected, abs=6e-4)


@pytest.mark.slow
def test_gaussian_weights_at_6_bits_are_within_a_percent_of_the_closed_form() -> None:
    """11 layers of 512, MLP 4x; scales counted at their 2 bytes. Measured: 1.0032 with the table and all vectors."""
    draw, width, state = torch.Generator().manual_seed(0), 512, {}
    shapes = {"attn.c_q": (1, 1), "attn.c_k": (0.5, 1), "attn.c_v": (0.5, 1), "attn.proj": (1, 1)}
    shapes |= {"mlp.fc": (4, 1), "mlp.proj": (1, 4)}
    for layer in range(11):
        for name, (rows, columns) in shapes.items():
            spread = 0.03 * torch.exp(0.3 * torch.randn(int(rows * width), 1, generator=draw))
            state[f"blocks.{layer}.{name}.weight"] = spread * torch.randn(
                int(rows * width), columns * width, generator=draw
            )
    assert sum(tensor.numel() for tensor in state.values()) == 23_068_672 + 8_650_752
    export = ExportSettings(
        format="flat",
        bits_attention=6,
        bits_mlp=6,
        scale_floor=0.0,
        clip_attention="std",
        clip_mlp="std",
        codec="brotli",
        codec_level=11,
        shuffle=True,
    )
    size = len(export_state(state, export))
    rows = sum(tensor.shape[0] for tensor in state.values())
    closed = 31_719_424 * gaussian_bits(6, 12.85) / 8 + 2 * rows
    assert size == pytest.approx(closed, rel=0.01)
