"""The search over export settings of one trained checkpoint: hundreds of them, without retraining."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from golfray.core.score import Score
from golfray.core.settings import ExportSettings, RunSettings
from golfray.sweep.export_space import ExportSpace


@dataclasses.dataclass(frozen=True)
class SearchPlan:
    """How much a search does. Defaults are for laptop and full scale alike.

    ``space``: what may be tried. ``settings``: how many quantizations are sized and scored at least once; each is sized
    under every codec. ``sequences``: length of the reserved slice, in sequences of ``batch.seq_len`` tokens. ``seed``:
    decides all that is drawn: the same seed gives the same search.
    """

    space: ExportSpace = ExportSpace()
    settings: int = 200
    sequences: int = 256
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Tried:
    """One export setting and what is known of it.

    ``export``: complete, format "flat". ``bytes``: of the artifact, ``measured`` where the codec itself has said so,
    else predicted. ``bits_per_byte`` on the first ``sequences`` of the reserved slice; ``error``: standard error of its
    distance from the float weights' there.
    """

    export: ExportSettings
    bytes: int
    measured: bool
    bits_per_byte: float
    error: float
    sequences: int


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    ``tried``: every setting, best first at its size. ``chosen``: the best at or under ``max_bytes``, or None where
    nothing fits. ``artifact``: its bytes. ``validation``: its score on the validation tokens, the only thing that was
    ever computed on them. ``unquantized``: bits per byte of the weights as they are, on the whole slice. ``reserve``:
    which tokens the slice has. ``seconds``: by stage.
    """

    tried: tuple[Tried, ...]
    max_bytes: int
    chosen: Tried | None
    artifact: bytes
    validation: Score | None
    unquantized: float
    reserve: str
    seconds: dict[str, float]

    def front(self) -> list[Tried]:
        """The settings on the whole slice with measured bytes that no other beats in both, by rising bytes."""
        raise NotImplementedError

    def best_at(self, most_bytes: int) -> Tried | None:
        """The best of the front at or under ``most_bytes``; None where none is that small."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: plain lists, numbers and texts; the artifact is left out."""
        raise NotImplementedError


def search_exports(
    state: dict[str, torch.Tensor],
    settings: RunSettings,
    *,
    steps: int | None,
    max_bytes: int,
    plan: SearchPlan | None = None,
    tell: Callable[[str], None] | None = None,
) -> SearchResult:
    """Search the export of a trained state dict of the model that ``settings.model`` describes, in one process.

    ``settings`` say model, batch, data, runtime, and the export settings that the space does not vary
    (keep_float_max_numel, bits_small, bits_control, scale_floor, gptq_batches, gptq_damping). ``steps``: optimizer
    steps that the run made, which tells what training tokens it did not reach; None: not known. ``max_bytes``: of the
    artifact, that is cap less code. ``tell`` hears a line a stage. Raises ``ValueError`` on weights that are not finite
    or not the model's, a space without a choice, and ``ImportError`` naming a codec that is not installed.
    """
    raise NotImplementedError


__all__ = ["SearchPlan", "SearchResult", "Tried", "search_exports"]
