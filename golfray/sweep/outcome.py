"""How an attempt at a trial ended: the only vocabulary in which results travel between floors."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from typing import Any


class Kind(enum.StrEnum):
    """Every attempt ends as exactly one of these."""

    SCORED = "scored"
    INFEASIBLE = "infeasible"
    DIVERGED = "diverged"
    STOPPED = "stopped"
    CRASHED = "crashed"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one attempt, always with a reason and the seconds each phase took.

    ``metrics`` uses the names of design.md (``bpb/roundtrip``, ``bytes/total``, ...). ``artifact`` is the path of the
    compressed model relative to the attempt's folder, or None where none was written. ``error`` names a failure's kind
    and place, such as ``ValueError at shards.py:41`` or ``phase limit: export``: two failures with the same one are the
    same failure. ``search``: where the export was searched, what was found, as
    :meth:`golfray.sweep.export_result.SearchResult.summary` has it.
    """

    kind: Kind
    reason: str
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    artifact: str | None = None
    artifact_sha256: str | None = None
    fidelity: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str | None = None
    search: dict[str, Any] | None = None

    @functools.cached_property
    def fidelity_key(self) -> str:
        """``fidelity`` as a text, made once: a study compares that of every trial whenever it looks for its best."""
        return json.dumps(self.fidelity, sort_keys=True)

    @property
    def refused_margin(self) -> float | None:
        """Bytes that a point, refused before it ran, was expected to leave under the cap; None where it ran."""
        if self.kind is not Kind.INFEASIBLE or "bpb/roundtrip" in self.metrics:
            return None
        margin = self.metrics.get("bytes/foreseen_margin", math.nan)
        return margin if math.isfinite(margin) else None

    def held_to(self, cap_bytes: int) -> Outcome:
        """The outcome as a log may have it: a score is a finite number, at a known size within ``cap_bytes``."""
        if self.kind not in (Kind.SCORED, Kind.INFEASIBLE) or self.refused_margin is not None:
            return self
        score, total = (self.metrics.get(name, math.nan) for name in ("bpb/roundtrip", "bytes/total"))
        if not (math.isfinite(score) and math.isfinite(total)):
            why = f"reported as {self.kind} with bpb/roundtrip={score} and bytes/total={total}"
            return dataclasses.replace(self, kind=Kind.CRASHED, reason=why, error="a score without a number")
        if self.kind is Kind.SCORED and total > cap_bytes:
            why = f"{total - cap_bytes:.0f} bytes over the cap of {cap_bytes}"
            return dataclasses.replace(self, kind=Kind.INFEASIBLE, reason=why)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form."""
        return {**dataclasses.asdict(self), "kind": self.kind.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        """Inverse of :meth:`to_dict`; raises ``ValueError`` on an unknown kind, ``TypeError`` on an unknown field."""
        return cls(**{**values, "kind": Kind(values["kind"])})
