"""A state dict as a flat artifact and back: what is stored how, from settings; each step callable by itself."""

import torch

from golfray.core.clip import column_scales, round_to_steps, row_scales
from golfray.core.container import Kept, Quantized, read_content, scale_shape, seal, unseal, write_content
from golfray.core.gptq import HessianFactor, factor_hessian, gptq_round
from golfray.core.integers import best_digits
from golfray.core.model import is_control
from golfray.core.quantize import dtype_name
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import TensorRule, rule_of


def export_state(
    state: dict[str, torch.Tensor], export: ExportSettings, hessians: dict[str, torch.Tensor] | None = None
) -> bytes:
    """The artifact's bytes. Raises ``ValueError`` as :func:`quantize_tensors`, ``ImportError`` without the codec."""
    tensors = quantize_tensors(state, export, hessians)
    content = write_content(tensors, choose_digits(tensors, export))
    return seal(content, export.codec, export.codec_level, export.shuffle)


def load_artifact(content: bytes) -> dict[str, torch.Tensor]:
    """The weights inside an artifact of our own; the ship floor checks those from elsewhere first."""
    return {name: restore(stored) for name, stored in read_content(unseal(content)).items()}


def quantize_tensors(
    state: dict[str, torch.Tensor], export: ExportSettings, hessians: dict[str, torch.Tensor] | None = None
) -> dict[str, Quantized | Kept]:
    """Every tensor as it will be stored.

    With ``export.gptq``, ``hessians`` by name as :func:`collect_hessians` gives them; what has none there (the table of
    an untied model) is rounded to the nearest. Raises ``ValueError`` naming a tensor that is not finite or beyond
    float16, and where Hessians are missing.
    """
    if export.gptq and not hessians:
        raise ValueError("export.gptq needs Hessians, collected on training tokens")
    factors: dict[int, HessianFactor] = {}
    tensors: dict[str, Quantized | Kept] = {}
    for name, tensor in state.items():
        rule, factor = tensor_rule(name, tensor, export), None
        hessian = hessians.get(name) if export.gptq and hessians else None
        if hessian is not None and rule is not None and rule.bits <= 8:
            # Layers with one input share one Hessian.
            if id(hessian) not in factors:
                factors[id(hessian)] = factor_hessian(hessian, export.gptq_damping)
            factor = factors[id(hessian)]
        tensors[name] = store_tensor(name, tensor, rule, factor)
    return tensors


def tensor_rule(name: str, tensor: torch.Tensor, export: ExportSettings) -> TensorRule | None:
    """The rule of a tensor; None where it is no floating-point tensor, which is stored as it is."""
    return rule_of(name, tensor.numel(), is_control(name), export) if tensor.is_floating_point() else None


def store_tensor(
    name: str, tensor: torch.Tensor, rule: TensorRule | None, factor: HessianFactor | None = None
) -> Quantized | Kept:
    """One tensor under one rule: what a search over export settings keeps by (name, rule).

    Computed on the device of ``factor``, else of the tensor. Raises ``ValueError`` as :func:`quantize_tensors`.
    """
    tensor, dtype = tensor.detach(), dtype_name(tensor.dtype)
    if rule is None:
        return Kept(tensor, dtype)
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} has values that are not finite; such weights cannot be exported")
    if rule.bits > 8:
        kept = tensor.half() if rule.bits == 16 else tensor.float() if tensor.dtype == torch.float64 else tensor
        check_finite(name, kept)
        return Kept(kept, dtype)
    rows = scale_shape(tuple(tensor.shape), 0)[0]
    values = tensor.float().reshape(rows, tensor.numel() // max(rows, 1))
    if factor is not None:
        values = values.to(factor.upper.device)
    best: tuple[float, torch.Tensor, torch.Tensor] | None = None
    candidates = row_scales(values, rule)
    for scales in candidates:
        check_finite(name, scales)
        steps = column_scales(scales, values.shape[1], rule.group)
        if factor is not None:
            whole, error = gptq_round(values, steps, rule.bits, factor)
        else:
            whole = round_to_steps(values, steps, rule.bits)
            error = float((values - whole * steps).square().mean()) if len(candidates) > 1 else 0.0
        if best is None or error < best[0]:
            best = error, whole, scales
    assert best is not None
    return Quantized(best[1].to(torch.int8).reshape(tensor.shape), best[2], rule.bits, rule.group, dtype)


def check_finite(name: str, stored: torch.Tensor) -> None:
    """Raise ``ValueError`` where what is to be stored, in its dtype, is not finite."""
    if not bool(torch.isfinite(stored).all()):
        raise ValueError(
            f"{name} has values, or steps, beyond {dtype_name(stored.dtype)}; such weights cannot be exported"
        )


def choose_digits(tensors: dict[str, Quantized | Kept], export: ExportSettings) -> dict[str, int]:
    """How many integers to a byte make each quantized tensor smallest under the codec, by name."""
    return {
        name: best_digits(stored.codes.cpu().numpy(), export.codec, export.codec_level)
        for name, stored in tensors.items()
        if isinstance(stored, Quantized)
    }


def restore(stored: Quantized | Kept) -> torch.Tensor:
    """The weights: float32(integer) * float32(step), or what was kept, in the tensor's own dtype, on the CPU."""
    if isinstance(stored, Kept):
        return stored.values.cpu().to(getattr(torch, stored.dtype))
    scales = stored.scales.cpu()
    rows = scales.shape[0]
    codes = stored.codes.cpu().float().reshape(rows, stored.codes.numel() // max(rows, 1))
    values = codes * column_scales(scales, codes.shape[1], stored.group)
    return values.reshape(stored.codes.shape).to(getattr(torch, stored.dtype))
