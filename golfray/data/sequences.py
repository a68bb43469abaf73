"""Whether a validation split holds a whole sequence: it is cut into such, each predicting one token more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from golfray.findings import Finding, warning


def judge_length(folder: Path, val_tokens: int, seq_lens: Mapping[str, int]) -> list[Finding]:
    """A finding where ``val_tokens`` are too few for one sequence of a length in use, given by what uses it."""
    most = val_tokens - 1
    short = [f"{name} ({length:,})" for name, length in seq_lens.items() if length > most]
    if not short:
        return []
    return [
        warning(
            "validation-short",
            folder / "fineweb_val_*.bin",
            f"its {val_tokens:,} token(s) are too few for one sequence, and the token after it, of {', '.join(short)}",
            f"set batch.seq_len to at most {most:,}, or validate on more text",
        )
    ]
