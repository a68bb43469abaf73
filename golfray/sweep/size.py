"""How large a model will be once it is trained and exported, before anything is trained.

Under k standard deviations without a floor a formula has the size (:mod:`golfray.sweep.size_formula`). Under every
other clip rule it depends on the weights: such are drawn (:mod:`golfray.sweep.drawn_weights`) and go through the real
quantizer and codec. docs/size.md has the errors of both.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy
import torch

from golfray.core.artifact import pack_artifact
from golfray.core.codec import compress, shuffle_bytes
from golfray.core.container import row_shape, write_content
from golfray.core.exporter import choose_digits, store_tensor
from golfray.core.quantize import quantize_state
from golfray.core.settings import ExportSettings, ModelSettings, RunSettings
from golfray.core.shards import TokenStream, list_shards
from golfray.sweep.drawn_weights import Walk, initial_state, trained_state, walk_of
from golfray.sweep.size_estimate import SizeEstimate
from golfray.sweep.size_formula import (
    HEADER_BYTES,
    SPARSE_EXCESS,
    TENSOR_BYTES,
    closed_form,
    codec_factor,
    has_closed_form,
    part_of,
    rule_for,
)

# What drawn weights are usually missed by, as a share: a floor, and more where rows of unseen tokens are a large part
# of the model.
_ERROR = 0.02
_ERROR_OF_UNSEEN = 0.35
# More under the flat format: the constants were fitted to 4 to 8 bits under zlib.
_ERROR_OF_FLAT = 0.04
# How much shorter a walk may turn out; it matters where the quantization step has a floor.
_SHORTER = 0.8

# The same for the formula. Rows of unseen tokens resemble each other, which some codecs make much of and some little.
# Small models have short planes, in which codecs do not come as close to the entropy.
_FORMULA_ERROR = 0.01
_UNSEEN_LEFT = 0.5
_SMALL_ERROR = 0.1
_SMALL_MODEL = 150_000

# Rounding that makes up for errors moves integers a little beyond where the nearest would be.
_GPTQ_ERROR = 0.02

# Of larger models some rows of each tensor stand for all: a slow codec takes a second for so many weights.
_MOST_DRAWN = 2**20

State = dict[str, torch.Tensor]
# Some rows of tensors, and the shapes that the whole tensors have.
Rows = Mapping[str, tuple[torch.Tensor, tuple[int, ...]]]
PackRows = Callable[[Rows, ExportSettings], int]

_TOKENS_READ = 20_000_000


def expected_bytes_model(settings: RunSettings, steps: int, unseen: Sequence[int] = ()) -> SizeEstimate:
    """Expected size of the artifact of a run that takes ``steps`` optimizer steps.

    ``unseen``: ids of tokens that the run never meets (see :func:`unseen_tokens`). Takes tens of milliseconds at laptop
    scale and seconds for 17 million parameters; torch's global random state is left as it was. Raises ``ImportError``
    where weights must be drawn and the codec is not installed.
    """
    total = sum(math.prod(shape) for shape in named_shapes(settings.model).values())
    share = len(unseen) * settings.model.model_dim / total
    if not depends_on_steps(settings):
        return _by_formula(settings, share)
    error = _ERROR + _ERROR_OF_UNSEEN * share + (_GPTQ_ERROR if settings.export.gptq else 0.0)
    state, walk = initial_state(settings.model, settings.runtime.seed), walk_of(settings, steps)
    if settings.export.format == "flat":
        error += _ERROR_OF_FLAT
    parts = packed_parts(trained_state(state, settings, walk, unseen), settings.export)
    size = sum(parts.values())
    if settings.export.scale_floor > 0:
        shorter = Walk(walk.muon * _SHORTER, walk.adam * _SHORTER, walk.decayed)
        less = packed_parts(trained_state(state, settings, shorter, unseen), settings.export)
        error += abs(1 - sum(less.values()) / size)
    return SizeEstimate(size, error, parts, "drawn weights")


def depends_on_steps(settings: RunSettings) -> bool:
    """Whether the size depends on the weights, and so on how long they are trained."""
    return not has_closed_form(named_shapes(settings.model), settings.export)


def unseen_tokens(folder: Path, vocab_size: int, tokens: int) -> tuple[int, ...]:
    """Ids below ``vocab_size`` that are not among the first ``tokens`` training tokens; at most 20 million are read."""
    stream = TokenStream(list_shards(folder, "train"))
    seen = numpy.bincount(stream.read(0, min(tokens, stream.total_tokens, _TOKENS_READ)), minlength=vocab_size)
    return tuple(int(token) for token in numpy.flatnonzero(seen[:vocab_size] == 0))


def parameter_shapes(model: ModelSettings) -> list[tuple[int, ...]]:
    """Shapes of a model's parameters, in the order of its state dict."""
    return list(named_shapes(model).values())


@functools.lru_cache(maxsize=256)
def named_shapes(model: ModelSettings) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's parameters, in the order of its state dict; not to be changed."""
    # Not on the meta device: drawing numbers there imports torch's compiler, which makes its folder on disk.
    return {name: tuple(tensor.shape) for name, tensor in initial_state(model, 0).items()}


def _by_formula(settings: RunSettings, unseen_share: float) -> SizeEstimate:
    shapes, export = named_shapes(settings.model), settings.export
    factor, error = codec_factor(export.codec, export.codec_level)
    contents = closed_form(shapes, export)
    whole = {part: content.total + SPARSE_EXCESS * content.sparse for part, content in contents.items()}
    parts = {part: round(factor * taken) for part, taken in whole.items() if taken > 0}
    total = sum(math.prod(shape) for shape in shapes.values())
    if "embedding" in parts:
        tables = sum(math.prod(shape) for name, shape in shapes.items() if part_of(name, shape, export) == "embedding")
        parts["embedding"] = round(parts["embedding"] * (1 - (1 - _UNSEEN_LEFT) * unseen_share * total / tables))
    parts["container"] = HEADER_BYTES + TENSOR_BYTES * len(shapes)
    error += SPARSE_EXCESS * sum(content.sparse for content in contents.values()) / sum(whole.values())
    error += _FORMULA_ERROR + _SMALL_ERROR * min(_SMALL_MODEL / total, 1.0) + (1 - _UNSEEN_LEFT) * unseen_share
    return SizeEstimate(sum(parts.values()), error + (_GPTQ_ERROR if export.gptq else 0.0), parts, "closed form")


def packed_parts(state: State, export: ExportSettings) -> dict[str, int]:
    """Bytes of each part of the artifact of some weights; GPTQ, for which there are no inputs, is left out.

    Of more than a million weights evenly spaced rows stand for all. Raises ``ImportError`` without the codec.
    """
    return (_packed_flat if export.format == "flat" else _packed_reference)(state, export)


def _packed_reference(state: State, export: ExportSettings) -> dict[str, int]:
    """Bytes of each part of the reference's artifact, by some rows of each tensor where there are very many."""
    if sum(tensor.numel() for tensor in state.values()) > _MOST_DRAWN:
        return _packed_by_rows(state, export, _pack_reference_rows)
    container, _ = quantize_state(state, export)
    size = len(pack_artifact(container, export.codec_level))
    # One stream has them all, so what a part takes of it is what it takes by itself, at a fast level, in proportion.
    alone: dict[str, int] = {}
    kept = {name: tensor for name, tensor in container["passthrough"].items() if tensor.is_floating_point()}
    for group in (container["quantized"], container["scales"], kept):
        for name, tensor in group.items():
            part = part_of(name, tuple(state[name].shape), export)
            alone[part] = alone.get(part, 0) + len(zlib.compress(tensor.numpy().tobytes(), min(export.codec_level, 1)))
    whole = sum(alone.values())
    parts = {part: round(size * taken / whole) for part, taken in alone.items()}
    largest = max(parts, key=lambda part: parts[part])
    parts[largest] += size - sum(parts.values())
    return parts


def _packed_flat(state: State, export: ExportSettings) -> dict[str, int]:
    """Bytes of each part of a flat artifact, by some rows of each tensor where there are very many."""
    container = HEADER_BYTES + TENSOR_BYTES * len(state)
    return {"container": container, **_packed_by_rows(state, export, _pack_flat_rows)}


def _packed_by_rows(state: State, export: ExportSettings, pack: PackRows) -> dict[str, int]:
    """Bytes of each part, in proportion to those of evenly spaced rows where the model is large."""
    stride = max(-(-sum(tensor.numel() for tensor in state.values()) // _MOST_DRAWN), 1)
    parts: dict[str, dict[str, tuple[torch.Tensor, tuple[int, ...]]]] = {}
    shown: dict[str, int] = {}
    whole: dict[str, int] = {}
    for name, tensor in state.items():
        shape = tuple(tensor.shape)
        part, rows = part_of(name, shape, export), row_shape(shape)[0]
        some = tensor[:: min(stride, rows)] if part != "kept" and tensor.ndim > 1 else tensor
        parts.setdefault(part, {})[name] = some, shape
        shown[part] = shown.get(part, 0) + some.numel()
        whole[part] = whole.get(part, 0) + tensor.numel()
    return {part: round(pack(rows, export) * whole[part] / shown[part]) for part, rows in parts.items()}


def _pack_flat_rows(rows: Rows, export: ExportSettings) -> int:
    tensors = {name: store_tensor(name, some, rule_for(name, shape, export)) for name, (some, shape) in rows.items()}
    content = write_content(tensors, choose_digits(tensors, export))
    body = content[4 + int.from_bytes(content[:4], "little") :]
    return len(compress(shuffle_bytes(body, 2) if export.shuffle else body, export.codec, export.codec_level))


def _pack_reference_rows(rows: Rows, export: ExportSettings) -> int:
    # Some rows of a tensor may be few enough to be kept as they are, which the tensor is not.
    limit = export.keep_float_max_numel
    planes = []
    for name, (some, shape) in rows.items():
        everything = dataclasses.replace(export, keep_float_max_numel=0 if math.prod(shape) > limit else limit)
        container, _ = quantize_state({name: some}, everything)
        planes += [container[kind][name] for kind in ("quantized", "scales", "passthrough") if name in container[kind]]
    return len(zlib.compress(b"".join(plane.numpy().tobytes() for plane in planes), export.codec_level))
