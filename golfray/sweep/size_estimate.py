"""What is expected of a model's size, and who can say so; nothing heavy is needed to pass it on."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from golfray.core.settings import ModelSettings, RunSettings


@dataclasses.dataclass(frozen=True)
class SizeEstimate:
    """Expected bytes of the compressed model, and the share of them by which that is usually missed.

    ``parts``: which tensors take how many of them. ``method``: "closed form", "drawn weights" or "law" (simulated).
    """

    bytes: int
    relative_error: float
    parts: dict[str, int]
    method: str


class SizeModel(Protocol):
    """Foresees sizes without training."""

    def expect(self, settings: RunSettings, steps: int) -> SizeEstimate:
        """The size after ``steps`` optimizer steps.

        Raises ``ImportError`` where a codec is needed and not installed, ``ValueError`` on weights that cannot be
        exported.
        """

    def depends_on_steps(self, settings: RunSettings) -> bool:
        """Whether it matters how long the weights are trained."""

    def parameters(self, model: ModelSettings) -> int:
        """How many parameters a model has."""
