"""Weights to integers and back: one scale a row, 4 to 8 bits, one integer a byte (sections 3.6 and 3.7)."""

import torch

from golfray.core.model import is_control
from golfray.core.settings import ExportSettings

QUANT_FORMAT = "int8_clean_per_row_v1"


def tensor_bits(name: str, export: ExportSettings) -> int:
    """Bits of a tensor by its class: attention, MLP, or embedding (table and head)."""
    if ".attn." in name:
        return export.bits_attention
    if ".mlp." in name:
        return export.bits_mlp
    if name in ("tok_emb.weight", "lm_head.weight"):
        return export.bits_embedding
    return 8


def quantize_tensor(tensor: torch.Tensor, bits: int, export: ExportSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers in [-(2^(bits-1) - 1), 2^(bits-1) - 1] as int8 of the tensor's shape, and the scale.

    2-D: c_r = quantile(|w_r|, clip_quantile), s_r = max(c_r / q_max, scale_floor), q = round_half_even(clip(w) / s)
    with the float32 s, and s returned as float16 of shape (rows,). Else one float32 scale c / q_max (1 if c = 0). A
    row of zeros under scale_floor 0 gets scale 1.
    """
    limit = 2 ** (bits - 1) - 1
    values = tensor.float()
    if values.ndim == 2:
        clip = row_quantile(values.abs(), export.clip_quantile)
        scale = (clip / limit).clamp_min(export.scale_floor)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        clipped = torch.clamp(values, -clip[:, None], clip[:, None])
        integers = torch.clamp(torch.round(clipped / scale[:, None]), -limit, limit).to(torch.int8).contiguous()
        return integers, scale.to(torch.float16).contiguous()
    clip = row_quantile(values.abs().view(1, -1), export.clip_quantile)[0]
    scale = clip / limit if clip > 0 else torch.ones_like(clip)
    integers = torch.clamp(torch.round(torch.clamp(values, -clip, clip) / scale), -limit, limit)
    return integers.to(torch.int8).contiguous(), scale.float()


def row_quantile(values: torch.Tensor, quantile: float) -> torch.Tensor:
    """Linearly interpolated quantile of each row of a float32 matrix, as float32 of shape (rows,).

    ``torch.quantile`` refuses 2^24 elements and more, so rows go through it a few at a time.
    """
    rows_at_once = max((2**24 - 1) // max(values.shape[1], 1), 1)
    return torch.cat([torch.quantile(part, quantile, dim=1) for part in values.split(rows_at_once)])


def quantize_state(state: dict[str, torch.Tensor], export: ExportSettings) -> tuple[dict, dict[str, int]]:
    """The reference's container for a state dict, and the number of payload bytes by where they lie.

    Not floating: stored as it is. At most ``keep_float_max_numel`` elements: control names as float32; float32 and
    bfloat16 others as float16 with the original dtype noted; other floats as they are. The rest is quantized. Raises
    ``ValueError`` naming a tensor that is not finite.
    """
    container: dict = {"__quant_format__": QUANT_FORMAT}
    quantized, scales, dtypes, passthrough, qmeta, original = {}, {}, {}, {}, {}, {}
    for name, tensor in state.items():
        tensor = tensor.detach().cpu().contiguous()
        if not tensor.is_floating_point():
            passthrough[name] = tensor
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} has values that are not finite; such weights cannot be exported")
        if tensor.numel() <= export.keep_float_max_numel:
            if is_control(name):
                passthrough[name] = tensor.float()
            elif tensor.dtype in (torch.float32, torch.bfloat16):
                original[name] = dtype_name(tensor.dtype)
                passthrough[name] = tensor.to(torch.float16)
            else:
                passthrough[name] = tensor
            continue
        quantized[name], scales[name] = quantize_tensor(tensor, tensor_bits(name, export), export)
        dtypes[name] = dtype_name(tensor.dtype)
        if tensor.ndim == 2:
            qmeta[name] = {"scheme": "per_row", "axis": 0}
    container.update(quantized=quantized, scales=scales, dtypes=dtypes, passthrough=passthrough)
    if qmeta:
        container["qmeta"] = qmeta
    if original:
        container["passthrough_orig_dtypes"] = original
    payload = {
        "integers": storage_bytes(quantized),
        "scales": storage_bytes(scales),
        "passthrough": storage_bytes(passthrough),
    }
    return container, payload


def dequantize_state(container: dict) -> dict[str, torch.Tensor]:
    """Weights from a container: float32(q) * float32(s) cast to the noted dtype, kept tensors to theirs.

    Raises ``ValueError`` if the container is not of the reference's format. What comes from elsewhere is checked
    first, by the ship floor.
    """
    if container["__quant_format__"] != QUANT_FORMAT:
        raise ValueError(f"artifact format is {container['__quant_format__']!r}, must be {QUANT_FORMAT!r}")
    state = {}
    for name, integers in container["quantized"].items():
        scale = container["scales"][name].float()
        if scale.ndim:
            scale = scale.view(-1, *[1] * (integers.ndim - 1))
        state[name] = (integers.float() * scale).to(getattr(torch, container["dtypes"][name])).contiguous()
    original = container.get("passthrough_orig_dtypes", {})
    for name, tensor in container["passthrough"].items():
        state[name] = tensor.to(getattr(torch, original[name])) if name in original else tensor
    return state


def storage_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of the elements of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def dtype_name(dtype: torch.dtype) -> str:
    """The reference's name of a dtype, such as "float32"."""
    return str(dtype).removeprefix("torch.")
