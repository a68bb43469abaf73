"""Cases about weights as bytes: int8_zlib, quantizer."""

import hashlib
import math
import zlib
from typing import Any

import numpy
import torch

from golfray.core.artifact import pack_artifact, unpack_artifact
from golfray.core.quantize import dequantize_state, quantize_state
from golfray.core.settings import ExportSettings
from golfray.selftest.errors import SelftestError
from golfray.selftest.inputs import quantizer_tensor
from golfray.selftest.model_cases import state_norms, trained_state
from golfray.selftest.sections import Case, Context, Section
from golfray.selftest.training import formula_model

State = dict[str, torch.Tensor]
REFERENCE_EXPORT = ExportSettings()


def summarize_export(state: State) -> tuple[dict[str, Any], dict[str, Any], State]:
    """Export a state dict as the reference does; returns its sizes, the container, and the weights read back."""
    container, payload = quantize_state(state, REFERENCE_EXPORT)
    content = pack_artifact(container, REFERENCE_EXPORT.codec_level)
    sizes = {
        "stats": {
            "param_count": sum(tensor.numel() for tensor in state.values()),
            "num_tensors": len(state),
            "num_float_tensors": len(container["quantized"]),
            "num_nonfloat_tensors": sum(not tensor.is_floating_point() for tensor in state.values()),
            "baseline_tensor_bytes": sum(tensor.numel() * tensor.element_size() for tensor in state.values()),
            "int8_payload_bytes": sum(payload.values()),
        },
        "raw_torch_save_bytes": len(zlib.decompress(content)),
        "zlib9_bytes": len(content),
        "passthrough": {name: dtype_text(tensor) for name, tensor in container["passthrough"].items()},
    }
    return sizes, container, dequantize_state(unpack_artifact(content))


def dtype_text(tensor: torch.Tensor) -> str:
    """Name of a tensor's dtype without the package."""
    return str(tensor.dtype).removeprefix("torch.")


def integer_facts(integers: torch.Tensor) -> dict[str, Any]:
    """What identifies a tensor of int8: hash of its bytes in row-major order, sum, sum of absolute values."""
    wide = integers.to(torch.int64)
    return {
        "sha256": hashlib.sha256(integers.contiguous().numpy().tobytes()).hexdigest(),
        "sum": int(wide.sum()),
        "abs_sum": int(wide.abs().sum()),
    }


def largest_error(before: torch.Tensor, after: torch.Tensor) -> float:
    """Largest absolute difference, in float64."""
    return float((before.double() - after.double()).abs().max()) if before.numel() else 0.0


def compute_int8_zlib(case: Case, context: Context) -> dict[str, Any]:
    """The export of formula weights, or of the weights that a train case of the same file ends with."""
    source = case["state"]
    if source["from"] == "formula":
        state = dict(formula_model(case["config"], case["weight_scale"]).state_dict())
    elif source["from"] == "train":
        if not 0 <= source["index"] < len(context.sections.get("train", [])):
            raise SelftestError(f"state is from train case {source['index']}, which the file does not have")
        state = trained_state(source["index"], context)
    else:
        raise SelftestError(f"state is from {source['from']!r}; known: formula, train")
    sizes, container, after = summarize_export(state)
    quantized = {
        name: {
            "shape": list(integers.shape),
            **integer_facts(integers),
            "scale_first_fp16": container["scales"][name].reshape(-1)[:4].tolist(),
        }
        for name, integers in container["quantized"].items()
    }
    return {
        **sizes,
        "int8_payload_bytes": sizes["stats"]["int8_payload_bytes"],
        "quantized": quantized,
        "dequantized_max_abs_error": {name: largest_error(state[name], tensor) for name, tensor in after.items()},
    }


def rounding_limits(case: Case, context: Context) -> tuple[dict[str, float], str]:
    """How far the recorded float16 rounding errors of trained weights may be off, by their place in the case.

    Such an error depends on the last bits of single weights, and the file itself lets trained weights differ (the train
    case's tolerances). It can be compared as the file says only where this machine's weights are the recorded ones to
    the last bit; elsewhere both errors lie between 0 and half a float16 unit at the largest weight.
    """
    if case["state"]["from"] != "train":
        return {}, ""
    index = case["state"]["index"]
    state, recorded = trained_state(index, context), context.sections["train"][index].get("param_norms_after", {})
    norms = state_norms(state)
    if set(norms) == set(recorded) and all(math.isclose(norms[name], recorded[name], rel_tol=1e-12) for name in norms):
        return {}, ""
    limits = {}
    for name, stored in case["passthrough"].items():
        if stored == "float16" and name in state and state[name].numel():
            largest = numpy.float16(float(state[name].abs().max()))
            limits[f"dequantized_max_abs_error.{name}"] = float(numpy.spacing(largest)) / 2.0
    return limits, "trained weights are not the recorded ones to the last bit: float16 rounding held to half a unit"


def compute_quantizer(case: Case, context: Context) -> dict[str, Any]:
    """The export of tensors of many shapes, dtypes and kinds."""
    state = {entry["name"]: quantizer_tensor(entry) for entry in case["state_dict"]}
    sizes, container, after = summarize_export(state)
    quantized = {}
    for name, integers in container["quantized"].items():
        scale = container["scales"][name]
        quantized[name] = {
            **integer_facts(integers),
            "scales_first12": scale.reshape(-1)[:12].tolist(),
            "scale_dtype": dtype_text(scale),
            "scale_shape": list(scale.shape),
        }
    dequantized = {
        name: {
            "dtype": dtype_text(tensor),
            "max_abs_error": largest_error(state[name], tensor),
            "sum_float64": float(tensor.double().sum()),
        }
        for name, tensor in after.items()
    }
    return {
        **sizes,
        "top_level_keys": list(container),
        "qmeta": container.get("qmeta", {}),
        "dtypes": container["dtypes"],
        "passthrough_orig_dtypes": container.get("passthrough_orig_dtypes", {}),
        "quantized": quantized,
        "dequantized": dequantized,
    }


INT8_ZLIB = Section(
    frozenset({"state", "config", "weight_scale"}),
    lambda case: f"weights from {case['state']['from']}",
    compute_int8_zlib,
    widened=rounding_limits,
)
QUANTIZER = Section(frozenset({"state_dict"}), lambda case: f"{len(case['state_dict'])} tensors", compute_quantizer)
