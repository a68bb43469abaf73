"""The inputs that vector files describe by formula instead of carrying them."""

import pathlib
from typing import Any

import numpy
import torch

from golfray.core.shards import SHARD_HEADER_INTS, SHARD_MAGIC, SHARD_VERSION
from golfray.selftest.errors import SelftestError

# The format's own list: a core that forgot one of these names must miss, so it is not asked.
CONTROL_PARTS = ("attn_scale", "mlp_scale", "resid_mix", "q_gain", "skip_weight")
ROW_AMPLITUDES = numpy.array([0.0, 0.5, 0.999, 1.5, 4.0, 40.0])
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
INTEGER_DTYPES = {"int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8}


def formula_values(k: int, count: int) -> numpy.ndarray:
    """sin(0.37 (k + 1) + 1.13 j + 0.000011 j j) for j = 0..count-1, float64 of shape (count,)."""
    j = numpy.arange(count, dtype=numpy.float64)
    return numpy.sin(0.37 * (k + 1) + 1.13 * j + 0.000011 * j * j)


def formula_tensor(k: int, shape: torch.Size | list[int], scale: float) -> torch.Tensor:
    """scale * :func:`formula_values` in row-major order, float32 of that shape."""
    values = scale * formula_values(k, int(numpy.prod(list(shape))))
    return torch.from_numpy(values.astype(numpy.float32)).reshape(list(shape))


def fill_with_formula(model: torch.nn.Module, weight_scale: float) -> None:
    """Give every parameter its formula values, cast to its own dtype: k counts the names in sorted order.

    Control tensors become 1 + 0.1 v, all others weight_scale v.
    """
    with torch.no_grad():
        for k, (name, parameter) in enumerate(sorted(model.named_parameters())):
            values = formula_values(k, parameter.numel())
            control = any(part in name for part in CONTROL_PARTS)
            values = 1.0 + 0.1 * values if control else weight_scale * values
            parameter.copy_(torch.from_numpy(values.astype(numpy.float32)).reshape(parameter.shape))


def formula_tokens(count: int, vocab_size: int) -> numpy.ndarray:
    """(31 i i + 17 i + 7) mod vocab for i = 0..count-1, int64 of shape (count,)."""
    i = numpy.arange(count, dtype=numpy.int64)
    return (31 * i * i + 17 * i + 7) % vocab_size


def write_formula_shards(folder: pathlib.Path, lengths: list[int], vocab_size: int) -> list[pathlib.Path]:
    """Write consecutive cuts of the formula tokens as training shards; returns their paths in reading order."""
    tokens, start, paths = formula_tokens(sum(lengths), vocab_size).astype("<u2"), 0, []
    for index, length in enumerate(lengths):
        header = numpy.zeros(SHARD_HEADER_INTS, dtype="<i4")
        header[:3] = SHARD_MAGIC, SHARD_VERSION, length
        paths.append(folder / f"fineweb_train_{index:06d}.bin")
        paths[-1].write_bytes(header.tobytes() + tokens[start : start + length].tobytes())
        start += length
    return paths


def quantizer_tensor(entry: dict[str, Any]) -> torch.Tensor:
    """One tensor of a quantizer case, from its kind, number k, shape and dtype.

    rows: row r of v times an amplitude by (r + k) mod 6, then element (7 r + 3) mod columns of each row times 3.
    flat: 0.3 v, then element (11 k + 5) mod n times 9. plain: 0.7 v. zeros. int: 0, 1, 2, ... Floating kinds are
    computed in float64, cast to float32 and then to the dtype. Raises ``SelftestError`` on an unknown kind or dtype.
    """
    kind, k, shape, dtype = entry["kind"], entry["k"], entry["shape"], entry["dtype"]
    known = INTEGER_DTYPES if kind == "int" else DTYPES
    if dtype not in known:
        raise SelftestError(f"{entry['name']}: unknown dtype {dtype!r} for kind {kind!r}; known: {sorted(known)}")
    count = int(numpy.prod(shape))
    if kind == "int":
        return torch.arange(count).reshape(shape).to(known[dtype])
    values = formula_values(k, count)
    if kind == "rows":
        rows = values.reshape(shape[0], -1)
        order = numpy.arange(shape[0])
        rows *= ROW_AMPLITUDES[(order + k) % len(ROW_AMPLITUDES)][:, None]
        rows[order, (7 * order + 3) % rows.shape[1]] *= 3.0
    elif kind == "flat":
        values *= 0.3
        values[(11 * k + 5) % count] *= 9.0
    elif kind == "plain":
        values *= 0.7
    elif kind == "zeros":
        values[:] = 0.0
    else:
        raise SelftestError(f"{entry['name']}: unknown kind {kind!r}; known: rows, flat, plain, zeros, int")
    return torch.from_numpy(values.astype(numpy.float32)).reshape(shape).to(known[dtype])
