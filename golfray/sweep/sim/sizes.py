"""How many bytes a simulated model has: the entropy of rounded bell-shaped weights, tensor class by tensor class.

Section 3.6 of parameter_golf.md: a row of standard deviation s that is rounded in steps of k s / (2^(b-1) - 1) takes
H(step) bits a weight; under the baseline's scale floor the step is at least floor / s. That memo's table of H is met to
.01 bits, and logged sizes under k*std to 1 %. :mod:`golfray.sweep.size` quantizes and compresses real weights instead,
which takes torch and, at full scale, seconds.
"""

from __future__ import annotations

import functools
import itertools
import math

from golfray.core.settings import ExportSettings, ModelSettings, RunSettings
from golfray.sweep.sim.law import Law, attention_weights, mlp_weights, parameter_count
from golfray.sweep.size_estimate import SizeEstimate

# Bytes over the entropy. zlib: at 8 bits .928 of a weight (section 3.6), which is the entropy, and more below: R12 has
# 15,296,720 bytes for int6 matrices and an int8 table. zstd-22 is 1.5 MB below zlib on 26.5 million int6 weights (R14);
# brotli: section 3.6; lzma is 2 to 5 % below zstd (section 7).
_OVER_ENTROPY = {"zlib": 1.0, "zstd": 1.0, "lzma": 0.97, "brotli": 1.008}
_ZLIB_A_BIT_BELOW_8 = 0.02

# Section 3.6: the container's names and shapes beside the tensors (17,224,025 bytes of a payload of 17,178,912), most
# of which compress away; two bytes a row for its scale.
_CONTAINER = 12_000
_ROW_SCALE = 2

# What training makes of the standard deviation of a matrix, which begins at (3 columns)^-1/2. By the scale floor the
# stock model has 10.5 MB after 100 steps (PR 539) and 12.3 MB after 1,700 on one GPU (section 0); after 13,780 it is
# above the floor at the baseline's rates (R01) and at half of them (R05).
_GROWTH = 0.000874
_GROWTH_EXPONENT = 0.65
_GROWTH_RATE_AT = 0.04


# By how much a study expects the law to miss what it measures: about as real foresight does.
_RELATIVE_ERROR = 0.02


class SimulatedSizes:
    """What a simulated study foresees of its sizes (:class:`golfray.sweep.size_estimate.SizeModel`): the law itself."""

    def __init__(self, law: Law) -> None:
        self._law = law

    def expect(self, settings: RunSettings, steps: int) -> SizeEstimate:
        """Without the jitter that a run will have."""
        return SizeEstimate(round(expected_bytes(self._law, settings, steps)), _RELATIVE_ERROR, {}, "law")

    def depends_on_steps(self, settings: RunSettings) -> bool:
        """Only a scale floor makes it matter how large weights are."""
        return settings.export.format == "reference" and settings.export.scale_floor > 0

    def parameters(self, model: ModelSettings) -> int:
        """By the formula."""
        return parameter_count(model)


def expected_bytes(law: Law, settings: RunSettings, steps: int) -> float:
    """Bytes of the compressed model after so many steps, without jitter."""
    model, export = settings.model, settings.export
    dim, layers = model.model_dim, model.num_layers
    table = model.vocab_size * dim * (1 if model.tie_embeddings else 2)
    classes = (
        (layers * attention_weights(model), export.bits_attention, export.clip_attention, export.clip_k_attention),
        (layers * mlp_weights(model), export.bits_mlp, export.clip_mlp, export.clip_k_mlp),
        (table, export.bits_embedding, export.clip_embedding, export.clip_k_embedding),
    )
    sd = weight_sd(settings, steps)
    payload = sum(
        weights * bits_a_weight(bits, _clip_at(law, clip, k, dim), export, sd) / 8 * _over_entropy(export.codec, bits)
        + weights / dim * _ROW_SCALE
        for weights, bits, clip, k in classes
    )
    control = parameter_count(model) - sum(weights for weights, *_ in classes)
    bytes_of_control = export.bits_control / 8 if export.format == "flat" else 4.0
    return payload + control * bytes_of_control + _CONTAINER


def weight_sd(settings: RunSettings, steps: int) -> float:
    """Standard deviation of a trained matrix's weights; decay takes away what it would reach without.

    PR 375: .01 of decay is worth 1.5 to 2 MB of 26.8 million int6 weights under the floor, which the factor is set to.
    """
    rate, decay = settings.optimizer.matrix_lr, settings.muon.weight_decay
    grown = _GROWTH * math.sqrt(rate / _GROWTH_RATE_AT) * max(steps, 1) ** _GROWTH_EXPONENT
    begun = 1 / math.sqrt(3 * settings.model.model_dim)
    return math.hypot(begun, grown) / (1 + 45.0 * decay)


def bits_a_weight(bits: int, clip_at: float, export: ExportSettings, sd: float) -> float:
    """Entropy, in bits, of one weight; ``clip_at`` in standard deviations."""
    levels = 2 ** (bits - 1) - 1
    step = clip_at / levels
    if export.format == "reference" and export.scale_floor > 0:
        step = max(step, export.scale_floor / sd)
    return entropy_of_rounded(round(step, 4), levels)


@functools.lru_cache(maxsize=4096)
def entropy_of_rounded(step: float, levels: int) -> float:
    """Entropy in bits of a standard normal value rounded to multiples of ``step``, clipped to ``levels`` of them."""

    def below(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    edges = [0.0, *(below((index + 0.5) * step) for index in range(-levels, levels)), 1.0]
    shares = (high - low for low, high in itertools.pairwise(edges))
    return -math.fsum(share * math.log2(share) for share in shares if share > 0)


def _over_entropy(codec: str, bits: int) -> float:
    return _OVER_ENTROPY[codec] + (_ZLIB_A_BIT_BELOW_8 * max(8 - bits, 0) if codec == "zlib" else 0.0)


def _clip_at(law: Law, rule: str, k: float, columns: int) -> float:
    """Where a row is clipped, in its standard deviations: near the largest of so many weights, or k itself."""
    return k if rule == "std" else law.tail * math.sqrt(2 * math.log(max(columns, 2)))
