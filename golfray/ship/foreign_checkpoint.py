"""Trained weights from anywhere: a state dict in a file of torch.save or of safetensors, and the model it is of.

Names and shapes are read first and compared with those of a model; only then are bytes of the tensors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from golfray.core.settings import ModelSettings
from golfray.ship.model_shapes import model_shapes, why_no_fit
from golfray.ship.safetensors_file import SafetensorsFile, is_safetensors
from golfray.ship.torch_file import StoredTensor, TorchFile

# Sixteen times what a model of a billion parameters takes in float32 would be of no use under any cap.
_LARGEST_CHECKPOINT = 2**32
_MOST_LAYERS = 1000
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LAYER = re.compile(r"blocks\.([0-9]{1,4})\.")


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message says which file, and why."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Weights by name: shapes as the file has them, its SHA-256 (hexadecimal), and what reads one tensor of it."""

    path: Path
    sha256: str
    shapes: Mapping[str, tuple[int, ...]]
    load: Callable[[str], torch.Tensor]

    def state(self, settings: ModelSettings) -> dict[str, torch.Tensor]:
        """The state dict, on the CPU, of the model that ``settings`` describe, in that model's order.

        Raises :class:`CheckpointError` where the file has other names or shapes than the model, where a value is not
        finite, and where the bytes are damaged.
        """
        own = model_shapes(settings)
        if (why := why_no_fit(self.shapes, own)) is not None:
            raise CheckpointError(f"{self.path}: {why}")
        state = {}
        for name in own:
            try:
                state[name] = self.load(name)
            except ValueError as error:
                raise CheckpointError(f"{self.path}: {error}") from error
            if not bool(torch.isfinite(state[name]).all()):
                raise CheckpointError(f"{self.path}: {name} has values that are not finite; it cannot be exported")
        return state


def read_checkpoint(path: Path) -> Checkpoint:
    """Open a file of either format and read its names and shapes.

    The file stays open until the checkpoint is forgotten. Raises :class:`CheckpointError` where it cannot be read, is
    of neither format, or holds anything but floating-point tensors by name.
    """
    file = _open(path)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    begin = file.read(16)
    try:
        if begin.startswith(b"PK"):
            shapes, dtypes, load = _torch_parts(TorchFile(file))
        elif is_safetensors(begin):
            tensors = SafetensorsFile(file)
            shapes, dtypes, load = tensors.shapes, tensors.dtypes, tensors.load
        else:
            raise ValueError("is no checkpoint: neither the zip of torch.save nor safetensors; it is not unpickled")
        for name, dtype in dtypes.items():
            if dtype not in _DTYPES:
                found = str(dtype).removeprefix("torch.")
                raise ValueError(f"{name[:80]} is {found}, must be float32, bfloat16 or float16")
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return Checkpoint(path, digest, shapes, load)


def infer_model(checkpoint: Checkpoint) -> dict[str, Any]:
    """Settings of the model, by field, that names and shapes tell: all that decide a shape.

    Those that decide none (softcap, RoPE base, epsilon) are not among them. Raises :class:`CheckpointError` where the
    tensors are not named as the reference names them.
    """
    shapes = checkpoint.shapes

    def shape(name: str, dimensions: int) -> tuple[int, ...]:
        found = shapes.get(name)
        if found is None or len(found) != dimensions or 0 in found:
            told = "missing" if found is None else f"of shape {found}"
            raise CheckpointError(
                f"{checkpoint.path}: {name} is {told}: not the reference's model, whose shape it would tell"
                f"{_hint(shapes)}"
            )
        return found

    vocab_size, model_dim = shape("tok_emb.weight", 2)
    (num_heads,) = shape("blocks.0.attn.q_gain", 1)
    kv_rows, _ = shape("blocks.0.attn.c_k.weight", 2)
    hidden, _ = shape("blocks.0.mlp.fc.weight", 2)
    layers = {int(found[1]) for found in map(_LAYER.match, shapes) if found}
    if len(layers) > _MOST_LAYERS or layers != set(range(len(layers))):
        raise CheckpointError(f"{checkpoint.path}: blocks must be numbered from 0 without a gap, and at most 1000")
    head_dim, rest = divmod(model_dim, num_heads)
    if rest or head_dim % 2 or kv_rows % head_dim or num_heads % (kv_rows // head_dim or num_heads + 1):
        raise CheckpointError(
            f"{checkpoint.path}: {num_heads} heads (blocks.0.attn.q_gain) and {kv_rows} rows of "
            f"blocks.0.attn.c_k.weight do not share a width of {model_dim}: heads must be of one even width, and "
            f"key/value heads must divide them"
        )
    return {
        "vocab_size": vocab_size,
        "num_layers": len(layers),
        "model_dim": model_dim,
        "num_heads": num_heads,
        "num_kv_heads": kv_rows // head_dim,
        "mlp_mult": hidden / model_dim,
        "tie_embeddings": "lm_head.weight" not in shapes,
    }


def _hint(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """What names tell of how the model was wrapped when it was saved."""
    for prefix in ("_orig_mod.", "module."):
        if shapes and all(name.startswith(prefix) for name in shapes):
            return f"; all names begin with {prefix}: save the state dict of the model inside"
    return ""


def _open(path: Path) -> BinaryIO:
    try:
        found = os.stat(path)
        # Whatever has no size of its own, such as a pipe or a device, may have no end.
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointError(f"{path}: is no file")
        if found.st_size > _LARGEST_CHECKPOINT:
            raise CheckpointError(f"{path}: has {found.st_size:,} bytes, at most {_LARGEST_CHECKPOINT:,} are read")
        return open(path, "rb")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _torch_parts(
    file: TorchFile,
) -> tuple[dict[str, tuple[int, ...]], dict[str, torch.dtype], Callable[[str], torch.Tensor]]:
    content = file.content
    if not isinstance(content, dict):
        raise ValueError(f"holds a {type(content).__name__}, must be a state dict: tensors by name")
    for name, value in content.items():
        if not isinstance(value, StoredTensor):
            raise ValueError(f"{name[:80]} is a {type(value).__name__}; must be a state dict: tensors by name")
    shapes = {name: value.shape for name, value in content.items()}
    return shapes, {name: value.dtype for name, value in content.items()}, lambda name: file.load(content[name])
