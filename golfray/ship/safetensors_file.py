"""Files in the safetensors format: eight bytes of length, a table in JSON, then the tensors' bytes to the file's end.

Read here and not by the package of that name: the format is a page long, and every size in it has to be bounded by what
this floor knows before anything is allocated, as in torch's files.
"""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO

import torch

# A table of ten thousand tensors has a megabyte.
_LARGEST_TABLE = 2**22
_LARGEST_SIZE = 2**40
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def is_safetensors(begin: bytes) -> bool:
    """Whether the first bytes of a file are those of this format: a table begins with a brace."""
    return begin[8:9] == b"{"


class SafetensorsFile:
    """A file in the format; ``shapes`` and ``dtypes`` are known before anything of a tensor is read.

    Raises ``ValueError`` where it is damaged or cut, or its tensors do not fill it from the table to its last byte.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, size = file, file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_TABLE):
            raise ValueError(f"has a table of {length:,} bytes, which is more than it holds or a table can have")
        try:
            table = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_without_repeats)
        except RecursionError as error:
            raise ValueError("has a table that is no JSON") from error
        except ValueError as error:
            raise ValueError(f"has a table that cannot be read: {error}") from error
        if not isinstance(table, dict):
            raise ValueError("has a table that is no object")
        table.pop("__metadata__", None)
        for name, entry in table.items():
            if not _is_entry(entry):
                raise ValueError(f"{name[:80]}: has an entry in the table that is no tensor")
        self.shapes = {name: tuple(entry["shape"]) for name, entry in table.items()}
        self.dtypes = {name: _DTYPES[entry["dtype"]] for name, entry in table.items()}
        self._starts = {}
        end = 0
        for name, entry in sorted(table.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = entry["data_offsets"]
            if start != end or stop - start != math.prod(self.shapes[name]) * self.dtypes[name].itemsize:
                raise ValueError(f"{name[:80]}: has a place in the file that is not the next one, or not of its size")
            self._starts[name], end = 8 + length + start, stop
        if 8 + length + end != size:
            raise ValueError(f"must have {8 + length + end:,} bytes by its table, has {size:,} (cut short?)")

    def load(self, name: str) -> torch.Tensor:
        """One tensor."""
        shape, dtype = self.shapes[name], self.dtypes[name]
        if not math.prod(shape):
            return torch.empty(shape, dtype=dtype)
        self._file.seek(self._starts[name])
        content = bytearray(self._file.read(math.prod(shape) * dtype.itemsize))
        return torch.frombuffer(content, dtype=dtype).reshape(shape)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _is_entry(entry: Any) -> bool:
    """Whether an entry is {"dtype", "shape", "data_offsets"} with sizes that a tensor can have."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        return False
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(shape) > 8 or len(offsets) != 2:
        return False
    whole = all(type(number) is int and 0 <= number < _LARGEST_SIZE for number in (*shape, *offsets))
    return whole and isinstance(entry["dtype"], str) and entry["dtype"] in _DTYPES
