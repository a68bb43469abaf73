"""A state dict as a flat artifact and back: what is stored how, from settings; each step callable by itself."""

from collections.abc import Callable

import numpy
import torch

from golfray.core.clip import column_scales, round_to_steps, row_scales
from golfray.core.codec import compress
from golfray.core.container import Kept, Quantized, read_part, row_shape, seal, unseal, write_part
from golfray.core.gptq import HessianFactor, factor_hessians, gptq_round
from golfray.core.integers import best_digits
from golfray.core.model import is_control
from golfray.core.quantize import dtype_name
from golfray.core.settings import ExportSettings
from golfray.core.tensor_rules import TensorRule, class_of, rule_of


def export_state(
    state: dict[str, torch.Tensor],
    export: ExportSettings,
    hessians: dict[str, torch.Tensor] | None = None,
    say: Callable[[str], None] | None = None,
) -> bytes:
    """The artifact's bytes. Raises ``ValueError`` as :func:`store_tensor`, ``ImportError`` without the codec.

    ``hessians``: with ``export.gptq``, those of :func:`collect_hessians`; a tensor that has none there (the table of an
    untied model) is rounded to the nearest, which ``say`` is told.
    """
    if export.gptq and not hessians:
        raise ValueError("export.gptq needs Hessians, collected on training tokens")
    factors = factor_hessians(hessians, export.gptq_damping) if export.gptq and hessians else {}
    rules = {name: tensor_rule(name, tensor, export) for name, tensor in state.items()}
    if export.gptq and say is not None:
        missing = [name for name, rule in rules.items() if rule and rule.bits <= 8 and name not in factors]
        if missing:
            say(f"no Hessian, so rounded to the nearest without GPTQ: {', '.join(missing)}")
    tensors = {name: store_tensor(name, state[name], rules[name], factors.get(name)) for name in storage_order(rules)}
    parts = [write_part(part, choose_digits(part, export), export.shuffle) for part in parts_of(tensors)]
    packed = [compress(part, export.codec, export.codec_level) for part in parts]
    return seal(parts, packed, export.codec, export.shuffle)


def storage_order(rules: dict[str, TensorRule | None]) -> list[str]:
    """Names with those of one rule beside each other: what a codec learns of one tensor then holds for the next."""
    kinds = list(rules.values())
    return sorted(rules, key=lambda name: kinds.index(rules[name]))


def parts_of(tensors: dict[str, Quantized | Kept]) -> list[dict[str, Quantized | Kept]]:
    """The tensors of each class, as they are packed: what classes have in common is less than what parts them."""
    parts: dict[str, dict[str, Quantized | Kept]] = {}
    for name, stored in tensors.items():
        parts.setdefault(class_of(name), {})[name] = stored
    return [parts[kind] for kind in sorted(parts)]


def load_artifact(artifact: bytes) -> dict[str, torch.Tensor]:
    """The weights inside an artifact of our own; the ship floor checks those from elsewhere first."""
    return {name: restore(stored) for name, stored in read_artifact(artifact).items()}


def read_artifact(artifact: bytes) -> dict[str, Quantized | Kept]:
    """The tensors inside an artifact of our own as they are stored."""
    parts, shuffled = unseal(artifact)
    return {name: stored for part in parts for name, stored in read_part(part, shuffled).items()}


def tensor_rule(name: str, tensor: torch.Tensor, export: ExportSettings) -> TensorRule | None:
    """The rule of a tensor; None where it is no floating-point tensor, which is stored as it is."""
    return rule_of(name, tensor.numel(), is_control(name), export) if tensor.is_floating_point() else None


def store_tensor(
    name: str, tensor: torch.Tensor, rule: TensorRule | None, factor: HessianFactor | None = None
) -> Quantized | Kept:
    """One tensor under one rule: what a search over export settings keeps by (name, rule, damping).

    Computed on the device of ``factor``, else of the tensor. Raises ``ValueError`` naming a tensor that is not finite,
    or whose values or steps are beyond float16.
    """
    tensor, dtype = tensor.detach(), dtype_name(tensor.dtype)
    if rule is None or rule.bits > 8:
        keep = tensor if rule is None or rule.bits == 32 else tensor.half()
        return Kept(finite(name, keep.float() if keep.dtype == torch.float64 else keep), dtype)
    values = finite(name, tensor).float().reshape(row_shape(tensor.shape))
    if factor is not None:
        values = values.to(factor.upper.device)
    found = []
    for scales in row_scales(values, rule):
        steps = column_scales(finite(name, scales), values.shape[1], rule.group)
        whole = gptq_round(values, steps, rule.bits, factor) if factor else round_to_steps(values, steps, rule.bits)
        found.append((float((values - whole * steps).square().mean()), whole, scales))
    _, whole, scales = min(found, key=lambda candidate: candidate[0])
    return Quantized(whole.to(torch.int8).reshape(tensor.shape), scales, rule.bits, rule.group, dtype)


def finite(name: str, values: torch.Tensor) -> torch.Tensor:
    """The values as they are. Raises ``ValueError`` where one is not finite."""
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} is not finite as {dtype_name(values.dtype)}; such weights cannot be exported")
    return values


def choose_digits(tensors: dict[str, Quantized | Kept], export: ExportSettings) -> dict[str, int]:
    """How many integers to a byte make the planes of a part smallest under the codec, by name: as many for each width.

    The same for all: a codec that has learned what one plane looks like knows the next.
    """
    widths: dict[int, dict[str, numpy.ndarray]] = {}
    for name, stored in tensors.items():
        if isinstance(stored, Quantized):
            widths.setdefault(stored.bits, {})[name] = stored.codes.cpu().numpy()
    best = {bits: best_digits(list(codes.values()), export.codec, export.codec_level) for bits, codes in widths.items()}
    return {name: best[bits] for bits, codes in widths.items() for name in codes}


def restore(stored: Quantized | Kept) -> torch.Tensor:
    """The weights: float32(integer) * float32(step), or what was kept, in the tensor's own dtype."""
    kind = getattr(torch, stored.dtype)
    if isinstance(stored, Kept):
        return stored.values.to(kind)
    codes = stored.codes.float().reshape(row_shape(stored.codes.shape))
    values = codes * column_scales(stored.scales, codes.shape[1], stored.group)
    return values.reshape(stored.codes.shape).to(kind)
