"""The scores of one configuration over seeds, with all that decides what they may be compared with.

A trial of a study, a file and a published row all become the same thing here, so that a claim has one form.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from typing import Any

from golfray.sweep.significance import Sample

_ROUNDING = 1e-4


class ClaimRefused(Exception):
    """Two groups of scores that may not be compared, or one that cannot be what it says; the message says which."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its score in bits per byte and in nats per token, its size in bytes; None where it is not known.

    ``left_out`` is why its score does not count, None where it does.
    """

    label: str
    seed: int | None
    bpb: float | None
    nats: float | None
    bytes_total: float | None = None
    left_out: str | None = None


@dataclasses.dataclass(frozen=True)
class ScoredText:
    """What was scored. ``digest`` is of all files of the corpus, training shards included.

    ``least_bytes`` and ``most_bytes`` bound what a right count of the validation text comes to, None where nobody has
    counted it. ``contaminated``: whether validation documents are training documents too, None where it is unknown.
    """

    name: str
    digest: str | None = None
    least_bytes: float | None = None
    most_bytes: float | None = None
    contaminated: bool | None = None


@dataclasses.dataclass(frozen=True)
class Scores:
    """One side of a claim.

    ``sample`` is in bits per byte, over the runs that count; ``runs`` lists every run that is known, none where only a
    summary was published. ``tokens``: how many a score predicts. ``bytes_per_token`` and ``implied_bytes`` follow from
    losses and scores. ``settings``: the resolved configuration as flat paths without its seed, None where it is not
    known. ``chosen_of``: of how many scores this was the best and was taken for it; None where it was not.
    ``objections``: why nothing can be claimed of it, whatever the numbers. ``repeats``: samples at its fidelity, its
    own among them, by a name that is theirs alone.
    """

    name: str
    kind: str
    sample: Sample
    runs: tuple[Run, ...]
    text: ScoredText
    evaluation: str
    fidelity: Mapping[str, Any]
    bytes_per_token: float | None
    implied_bytes: float | None
    settings: Mapping[str, Any] | None
    chosen_of: int | None = None
    objections: tuple[str, ...] = ()
    repeats: Mapping[str, Sample] = dataclasses.field(default_factory=dict)
    note: str | None = None


def bytes_per_token(nats: float, bpb: float) -> float:
    """Bytes that a token stands for on average, from a loss in nats per token and the score it makes: both are the
    same sum of losses, so nats / ln 2 bits a token over bpb bits a byte.
    """
    return nats / math.log(2) / bpb


def nats_per_bpb(per_token: float) -> float:
    """Nats per token in one bit per byte, for a tokenizer of so many bytes per token."""
    return math.log(2) * per_token


def mean_bytes_per_token(runs: tuple[Run, ...]) -> float | None:
    """The mean over the runs of which both figures are known."""
    known = [bytes_per_token(run.nats, run.bpb) for run in runs if run.nats is not None and run.bpb is not None]
    return statistics.fmean(known) if known else None


def implied_bytes(name: str, runs: tuple[Run, ...], tokens: int | None, text: ScoredText) -> float | None:
    """Bytes that the runs' losses and scores imply: val_loss / ln 2 * predicted tokens / bpb; None where unknown.

    Raises ``ClaimRefused`` as :func:`check_bytes` does.
    """
    found = []
    for run in runs:
        if tokens is not None and run.nats is not None and run.bpb is not None:
            found.append(tokens * bytes_per_token(run.nats, run.bpb))
            check_bytes(f"{name}: {run.label}", found[-1], run.bpb, text)
    return statistics.fmean(found) if found else None


def check_bytes(name: str, found: float, bpb: float, text: ScoredText) -> None:
    """Raise ``ClaimRefused`` where a score divides by bytes that are not those of its text.

    Losses and scores are rounded where they were printed, which moves ``found`` by a few parts in 100,000.
    """
    if text.least_bytes is None or text.most_bytes is None:
        return
    if not text.least_bytes * (1 - _ROUNDING) <= found <= text.most_bytes * (1 + _ROUNDING):
        raise ClaimRefused(
            f"{name}: loss and score imply {found:,.0f} bytes, but {text.name} has "
            f"{_range(text.least_bytes, text.most_bytes)}: they were counted wrongly, so {bpb:.4f} is no score on it"
        )


def _range(least: float, most: float) -> str:
    return f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
