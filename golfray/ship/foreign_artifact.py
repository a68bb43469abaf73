"""An artifact from anywhere: everything it claims is checked before anything of it is allocated or computed."""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Mapping

import torch

from golfray.core.container import FLAT_MAGIC
from golfray.core.quantize import QUANT_FORMAT, dequantize_state
from golfray.core.settings import ModelSettings
from golfray.ship.foreign_flat import flat_shapes, flat_state, open_flat
from golfray.ship.model_shapes import model_shapes, why_no_fit
from golfray.ship.torch_file import TorchFile

_FLOAT_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_PARTS = ("quantized", "scales", "dtypes", "passthrough", "passthrough_orig_dtypes")


def foreign_state(content: bytes, settings: ModelSettings) -> dict[str, torch.Tensor]:
    """The weights inside an artifact, as a state dict of the model that ``settings`` describe, trusting nothing.

    Its first bytes say which of the two formats it has. Nothing it says is run, and its sizes are bounded by the
    model's before memory is taken, which the model itself does not take: its shapes are enough. Raises ``ValueError``
    where the artifact is damaged, hostile, or another model's, or needs a codec that is not installed.
    """
    own = model_shapes(settings)
    bound = 2**20 + sum(8 * shape.numel() + 4096 for shape in own.values())
    if content.startswith(FLAT_MAGIC.encode()):
        flat = open_flat(content, bound, len(own))
        _refuse_other_shapes(flat_shapes(flat), own)
        return flat_state(flat)
    container = open_container(content, bound)
    _refuse_other_shapes(container_shapes(container), own)
    _refuse_not_finite(container)
    return dequantize_state(container)


def _refuse_other_shapes(shapes: Mapping[str, torch.Size], own: Mapping[str, torch.Size]) -> None:
    if (why := why_no_fit(shapes, own)) is not None:
        raise ValueError(f"artifact {why}")


def open_container(content: bytes, max_bytes: int) -> dict:
    """The container inside an artifact, without running anything it says.

    Raises ``ValueError`` where the content is not zlib, holds more than ``max_bytes``, is cut or has bytes after its
    end, or is not a plain dict of tensors.
    """
    inflater = zlib.decompressobj()
    try:
        saved = inflater.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"artifact is not zlib data: {error}") from error
    if len(saved) > max_bytes:
        raise ValueError(f"artifact inflates to more than {max_bytes} bytes")
    if not inflater.eof or inflater.unused_data:
        raise ValueError("artifact is cut short" if not inflater.eof else "artifact has bytes after its end")
    try:
        file = TorchFile(io.BytesIO(saved))
        container = file.load(file.content)
    except ValueError as error:
        raise ValueError(f"artifact {error}") from error
    if not isinstance(container, dict):
        raise ValueError(f"artifact holds a {type(container).__name__}, must be a dict")
    return container


def container_shapes(container: Mapping) -> dict[str, torch.Size]:
    """Shape of every weight in a container, once its parts are known to belong together.

    Nothing is computed, so that a container which claims far more than it holds costs nothing. Raises ``ValueError``.
    """
    if container.get("__quant_format__") != QUANT_FORMAT:
        raise ValueError(f"artifact format is {container.get('__quant_format__')!r}, must be {QUANT_FORMAT!r}")
    parts = [container.get(name, {} if name == _PARTS[-1] else None) for name in _PARTS]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"artifact must have {_PARTS[:-1]}, each a dict")
    quantized, scales, dtypes, passthrough, original = (dict(part or {}) for part in parts)
    if not quantized.keys() == scales.keys() == dtypes.keys() or not original.keys() <= passthrough.keys():
        raise ValueError("artifact has weights without scale or dtype, or a scale or dtype without weights")
    if both := quantized.keys() & passthrough.keys():
        raise ValueError(f"artifact has weights twice: {both}")
    for name in (*dtypes.values(), *original.values()):
        if name not in _FLOAT_DTYPES:
            raise ValueError(f"artifact names the dtype {name!r}; known: {sorted(_FLOAT_DTYPES)}")
    for name, tensor in [*quantized.items(), *scales.items(), *passthrough.items()]:
        plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not plain or not tensor.is_contiguous():
            raise ValueError(f"{name}: artifact must hold plain contiguous tensors")
    for name, tensor in quantized.items():
        scale = scales[name]
        if tensor.dtype != torch.int8 or not scale.is_floating_point() or scale.shape not in ((), tensor.shape[:1]):
            found = f"{scale.dtype} scales of shape {tuple(scale.shape)} for {tensor.dtype} of {tuple(tensor.shape)}"
            raise ValueError(f"{name}: {found}")
    return {name: tensor.shape for name, tensor in [*quantized.items(), *passthrough.items()]}


def _refuse_not_finite(container: Mapping) -> None:
    """Raise ``ValueError`` where a weight would not be finite once it is dequantized to its dtype."""
    for name, tensor in container["passthrough"].items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name}: artifact has values that are not finite")
    for name, scale in container["scales"].items():
        largest = 128.0 * float(scale.double().abs().max()) if scale.numel() else 0.0
        if not math.isfinite(largest) or largest > torch.finfo(_FLOAT_DTYPES[container["dtypes"][name]]).max:
            raise ValueError(f"{name}: artifact has scales that are not finite, or too large for its dtype")
