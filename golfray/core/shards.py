"""Token shards on disk, the cyclic training stream over them, and the validation tokens."""

import pathlib

import numpy
import torch

SHARD_MAGIC = 20240520
SHARD_VERSION = 1
SHARD_HEADER_INTS = 256


def map_shard(path: pathlib.Path) -> numpy.ndarray:
    """Map one shard without reading it.

    The file is 256 little-endian int32 (magic, version, token count, rest unused), then that many little-endian uint16.

    Returns a read-only uint16 array of shape (tokens,). Raises ``ValueError`` naming the file, what was found and what
    it must be.
    """
    path = pathlib.Path(path)
    size = path.stat().st_size
    if size < 4 * SHARD_HEADER_INTS:
        raise ValueError(f"{path}: {size} bytes is too short for a shard header of {4 * SHARD_HEADER_INTS} bytes")
    header = numpy.fromfile(path, dtype="<i4", count=SHARD_HEADER_INTS)
    if int(header[0]) != SHARD_MAGIC or int(header[1]) != SHARD_VERSION:
        raise ValueError(
            f"{path}: not a version {SHARD_VERSION} token shard: magic {int(header[0])} (must be {SHARD_MAGIC}), "
            f"version {int(header[1])}"
        )
    count = int(header[2])
    if count <= 0 or size != 4 * SHARD_HEADER_INTS + 2 * count:
        raise ValueError(
            f"{path}: header says {count} tokens, so the file must have {4 * SHARD_HEADER_INTS + 2 * count} bytes, "
            f"but it has {size} (cut download?)"
        )
    return numpy.memmap(path, dtype="<u2", mode="r", offset=4 * SHARD_HEADER_INTS, shape=(count,))


def list_shards(folder: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Shards of a split ("train" or "val") in reading order. Raises ``FileNotFoundError`` where there are none."""
    paths = sorted(pathlib.Path(folder).glob(f"fineweb_{split}_*.bin"))
    if not paths:
        raise FileNotFoundError(f"{folder}: no fineweb_{split}_*.bin here; data.folder must hold token shards")
    return paths


class TokenStream:
    """The training shards as one endless sequence: shard after shard by name, then from the start again.

    The stream has no state. Slice number n of length L + 1 is the same tokens whoever asks for it, so the micro-batches
    of a step do not depend on how many ranks share them, and each rank touches only the pages of its own slices.
    """

    def __init__(self, paths: list[pathlib.Path]) -> None:
        self.shards = [map_shard(path) for path in paths]
        self.ends = numpy.cumsum([len(shard) for shard in self.shards])
        self.total_tokens = int(self.ends[-1])

    def read(self, start: int, count: int) -> numpy.ndarray:
        """Tokens [start, start + count) of the endless sequence as int64 of shape (count,)."""
        out = numpy.empty(count, dtype=numpy.int64)
        filled = 0
        while filled < count:
            position = (start + filled) % self.total_tokens
            index = int(numpy.searchsorted(self.ends, position, side="right"))
            offset = position - (int(self.ends[index - 1]) if index else 0)
            piece = self.shards[index][offset : offset + count - filled]
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
        return out

    def slice_batch(self, number: int, tokens: int, seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of slice ``number``: two int64 tensors of shape (tokens / seq_len, seq_len)."""
        flat = torch.from_numpy(self.read(number * (tokens + 1), tokens + 1))
        return flat[:-1].reshape(-1, seq_len), flat[1:].reshape(-1, seq_len)


def load_validation_tokens(paths: list[pathlib.Path], seq_len: int) -> numpy.ndarray:
    """All validation shards joined and cut to a whole number of sequences plus one target, uint16.

    usable = floor((n - 1) / seq_len) * seq_len predicted tokens (section 3.5). Raises ``ValueError`` if that is zero.
    """
    joined = numpy.concatenate([map_shard(path) for path in paths])
    usable = (len(joined) - 1) // seq_len * seq_len
    if usable <= 0:
        raise ValueError(
            f"{paths[0].parent}: {len(joined)} validation tokens are too few for one sequence of {seq_len}; "
            "lower batch.seq_len"
        )
    return joined[: usable + 1]


def validation_range(total_sequences: int, rank: int, world_size: int) -> tuple[int, int]:
    """First and one-past-last validation sequence of a rank: floor(total * r / W) to floor(total * (r + 1) / W)."""
    return total_sequences * rank // world_size, total_sequences * (rank + 1) // world_size
