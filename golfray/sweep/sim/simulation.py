"""What a person may say about a simulated study: its machine, what goes wrong on it, and the luck of the draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from golfray.config.errors import ConfigError

LAW_VERSION = 1
"""Goes up with every change after which the same study would have other scores; it is part of the fidelity."""

_SHARES = ("broken", "crash", "preempt", "hang", "slow")


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A simulated machine. Shares are probabilities from 0 to 1.

    ``scale``: whose law, "full" or "laptop". ``lanes``: how many attempts run at once. ``seed``: of all luck.
    ``broken``: share of configurations that crash on every attempt before their first step. ``crash``, ``preempt``,
    ``hang``: share of attempts that end so, somewhere. ``slow``: share of lanes whose steps take ``slow_factor`` times
    as long. ``diverge_ratio``: Muon rates above so many times the best one diverge (assumed: no public number).
    """

    scale: str = "full"
    lanes: int = 1
    seed: int = 0
    broken: float = 0.0
    crash: float = 0.0
    preempt: float = 0.0
    hang: float = 0.0
    slow: float = 0.0
    slow_factor: float = 1.08
    diverge_ratio: float = 8.0

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ConfigError(f"--sim lanes={self.lanes}: must be >= 1")
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"--sim {name}={getattr(self, name):g}: must be within 0 and 1")
        for name in ("slow_factor", "diverge_ratio"):
            if not 1 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"--sim {name}={getattr(self, name):g}: must be >= 1 and finite")
        if self.crash + self.preempt + self.hang > 1:
            raise ConfigError("--sim: crash, preempt and hang together must be at most 1")

    @classmethod
    def from_options(cls, scale: str, options: Sequence[str]) -> Simulation:
        """From texts NAME=VALUE. Raises ``ConfigError`` on an unknown name, or a value that is not as it must be."""
        types = {field.name: int if field.type == "int" else float for field in dataclasses.fields(cls)}
        del types["scale"]
        values: dict[str, Any] = {}
        for option in options:
            name, _, text = option.partition("=")
            if name not in types:
                raise ConfigError(f"--sim {option}: no such name; one of {', '.join(types)}")
            try:
                values[name] = types[name](text)
            except ValueError:
                kind = "a whole number" if types[name] is int else "a number"
                raise ConfigError(f"--sim {option}: must be {kind}") from None
        return cls(scale=scale, **values)

    def to_record(self) -> dict[str, Any]:
        """What the event log keeps under ``simulation``: with it the same study can be simulated again."""
        return {"law": LAW_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Simulation:
        """Inverse of :meth:`to_record`. Raises ``ConfigError`` where another version of the law wrote it."""
        known = {field.name for field in dataclasses.fields(cls)}
        if values.get("law") != LAW_VERSION or known != values.keys() - {"law"}:
            raise ConfigError(
                f"the study was simulated by law {values.get('law')} and this golfray has law {LAW_VERSION}: its "
                "trials and new ones could not be compared; start another study"
            )
        return cls(**{name: values[name] for name in known})
