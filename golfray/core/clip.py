"""Where a row of weights is clipped: quantile, maximum, k standard deviations, or several quantiles to choose from."""

import torch

from golfray.core.tensor_rules import TensorRule

# "Best of n" tries the n last; the five last are those of the parameter-golf records.
BEST_QUANTILES = (0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0)


def row_scales(values: torch.Tensor, rule: TensorRule) -> list[torch.Tensor]:
    """Candidate quantization steps of a float32 matrix (rows, columns), each float16 of shape (rows, groups).

    One candidate, or ``best_of`` under the clip "best". A step is max(clip / (2^(bits-1) - 1), floor), rounded to
    float16, so that rows of zeros, and of weights too small for float16, have step 0 without a floor.
    """
    groups = values.split(rule.group or max(values.shape[1], 1), dim=1)
    clips = torch.stack([row_clips(group, rule) for group in groups], dim=2)
    return list((clips / (2 ** (rule.bits - 1) - 1)).clamp_min(rule.floor).half())


def row_clips(values: torch.Tensor, rule: TensorRule) -> torch.Tensor:
    """Magnitudes at which rows are clipped, float32 of shape (candidates, rows).

    "std" is k times the deviation with n - 1 (section 5.2 of the frontier switches), summed in float64 so that every
    machine rounds it alike; a row of one element takes the element for it.
    """
    magnitudes = values.abs()
    if values.numel() == 0:
        return values.new_zeros(1, values.shape[0])
    if rule.clip == "max":
        return magnitudes.amax(dim=1)[None]
    if rule.clip == "std":
        spread = values.double().std(dim=1) if values.shape[1] > 1 else magnitudes[:, 0]
        return rule.k * spread.float()[None]
    quantiles = BEST_QUANTILES[-rule.best_of :] if rule.clip == "best" else (rule.quantile,)
    wanted = torch.tensor(quantiles, device=values.device)
    # torch.quantile refuses 2^24 elements and more.
    parts = magnitudes.split(max((2**24 - 1) // values.shape[1], 1))
    return torch.cat([torch.quantile(part, wanted, dim=1) for part in parts], dim=1)


def column_scales(scales: torch.Tensor, columns: int, group: int) -> torch.Tensor:
    """Steps as float32: one for each column (rows, columns) where there are several groups, else (rows, 1)."""
    steps = scales.float()
    return steps.repeat_interleave(group, dim=1)[:, :columns] if steps.shape[1] > 1 else steps


def round_to_steps(values: torch.Tensor, steps: torch.Tensor, bits: int) -> torch.Tensor:
    """Nearest integers, half to even, within +-(2^(bits-1) - 1), as float32; 0 where the step is 0."""
    limit = 2 ** (bits - 1) - 1
    return torch.where(steps > 0, torch.round(values / steps).clamp(-limit, limit), 0.0)
