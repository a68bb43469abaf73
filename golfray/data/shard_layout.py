"""How token shards are named, and what a token takes: known before anything heavy is imported."""

from __future__ import annotations

import re

TOKEN_BYTES = 2
# As many ids as a token has values.
MAX_VOCAB_SIZE = 2 ** (8 * TOKEN_BYTES)
SPLITS = ("train", "val")

_NAME = re.compile(r"fineweb_(train|val)_([0-9]+)\.bin")


def shard_name(split: str, number: int) -> str:
    """File name of shard ``number`` of "train" or "val"."""
    return f"fineweb_{split}_{number:06d}.bin"


def split_and_number(name: str) -> tuple[str, int] | None:
    """What :func:`shard_name` made a name from; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or shard_name(match[1], int(match[2])) != name:
        return None
    return match[1], int(match[2])
