"""One trial of a study as its event log tells it: what was asked, and every attempt at it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from golfray.sweep.node_probe import NodeProbe
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.resolved_diff import flat_configuration

# Roles of trials, in the order in which a study asks them; confirmations come once it is asked for them.
# Replicates are trial 0 on further seeds, extra seeds what the noise does not set apart from the best.
PRESET = "preset"
PRESET_8BIT = "preset_8bit"
FIRST_POINT = "first_point"
REPLICATE = "replicate"
SAMPLER = "sampler"
EXTRA_SEED = "extra_seed"
CONFIRM = "confirm"
# A short run (:mod:`golfray.sweep.rungs`).
RUNG = "rung"


@dataclasses.dataclass(frozen=True)
class LateCheck:
    """What a late check found hopeless (:mod:`golfray.sweep.stopping`), after a ``share`` of the run.

    ``expected`` and ``bar`` in bits per byte, ``chance`` of ending below the bar, by ``known`` finished runs.
    ``audited``: it ran on all the same.
    """

    share: float
    expected: float
    chance: float
    bar: float
    known: int
    audited: bool
    reason: str


@dataclasses.dataclass
class AttemptRecord:
    """One try at running a trial. ``folder`` is relative to the study; times are unix seconds.

    ``curve`` holds (step, metrics), ``phases`` (phase, when it began). ``last_sign`` is when it was last heard of.
    ``nodes``: those of its lane, as they measured themselves when it formed; empty in logs that do not say.
    ``final``: whether its end is the trial's; otherwise the trial is run again. ``generation`` is its driver's number.
    ``size_reserve``: bytes that another seed may be larger by, at the probability that the space asks for.
    ``late_check``: why it was hopeless; None where it was not looked at, or was not.
    """

    number: int
    job_id: str
    generation: int
    folder: str | None = None
    lane: str | None = None
    nodes: tuple[NodeProbe, ...] = ()
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    last_sign: float | None = None
    outcome: Outcome | None = None
    final: bool = True
    size_reserve: float = 0.0
    curve: list[tuple[int, dict[str, float]]] = dataclasses.field(default_factory=list)
    phases: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    late_check: LateCheck | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the study has decided to stop it; it may be at work until it hears of that."""
        return self.late_check is not None and not self.late_check.audited

    @property
    def last_metrics(self) -> dict[str, float]:
        """What it reported last, as an outcome has it; nothing before a first report."""
        if not self.curve:
            return {}
        step, last = self.curve[-1]
        return {**last, "train/steps": float(step)}

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds of each phase, up to its last sign."""
        ends = [begun for _, begun in self.phases[1:]] + [self.last_sign or 0.0]
        return {name: max(0.0, end - at) for (name, at), end in zip(self.phases, ends, strict=False)}

    @property
    def phase(self) -> str | None:
        """The phase that it is in, or was in last; None where it announced none."""
        return self.phases[-1][0] if self.phases else None

    @property
    def made_progress(self) -> bool:
        """Whether it reported a step: a failure before that is one of what every run does first."""
        return bool(self.curve)


@dataclasses.dataclass
class TrialRecord:
    """One trial: what was asked, and every attempt at it.

    ``refused`` says why the trial was refused: its configuration is impossible, and then ``settings`` is None; or it
    cannot fit, and then it is ``too_large``. ``foreseen`` is what was expected of its size, None where nothing was.
    ``kept_from_sampler`` is why the sampler does not hear of it, None where it does; ``left_space`` is the same of a
    space that was changed since. ``configuration`` is what trials of the same settings share whatever their seeds
    (:func:`configuration_of`), None without settings. ``share``: of the study's length, below 1 for the short runs of
    rungs alone; ``promotes``: the shorter run of the same point that earned this one. ``abandoned``: the study has
    ended, so nobody runs the trial again as things are.
    """

    number: int
    role: str
    params: dict[str, Any]
    settings: dict[str, Any] | None
    seed: int
    replicate_of: int | None
    kept_from_sampler: str | None = None
    left_space: str | None = None
    refused: str | None = None
    foreseen: dict[str, float] | None = None
    too_large: bool = False
    share: float = 1.0
    promotes: int | None = None
    configuration: str | None = None
    abandoned: bool = False
    attempts: list[AttemptRecord] = dataclasses.field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Whether it was refused, so that it never runs."""
        return self.settings is None or self.too_large

    @property
    def told_reason(self) -> str | None:
        """Why the sampler does not hear of the trial; None where it does."""
        return self.kept_from_sampler or self.left_space

    @property
    def told(self) -> bool:
        """Whether the sampler hears of the trial."""
        return self.told_reason is None

    @property
    def repeats(self) -> bool:
        """Whether it is another trial on another seed, and so no configuration of its own."""
        return self.replicate_of is not None

    @property
    def searches(self) -> bool:
        """Whether it is one of the trials that the budget counts: a point of the search, be it one that was there."""
        return self.role not in (REPLICATE, EXTRA_SEED, CONFIRM)

    @property
    def outcome(self) -> Outcome | None:
        """How the last attempt ended; None while it runs and while the trial waits to be run again.

        Once the study has ended nothing waits any more, though a resumed study may run the trial again.
        """
        last = self.attempt
        return last.outcome if last is not None and (last.final or self.abandoned) else None

    @property
    def ended_unanswered(self) -> bool:
        """Whether it ended for good and said nothing of its configuration: crashed, taken away, stopped on the way."""
        outcome = self.outcome
        return outcome is not None and outcome.kind not in (Kind.SCORED, Kind.INFEASIBLE, Kind.DIVERGED)

    @property
    def unfinished(self) -> bool:
        """Whether the trial still needs an attempt to end: it has none yet, or its last one was not final."""
        last = self.attempt
        return last is None or last.outcome is None or not last.final

    @property
    def attempt(self) -> AttemptRecord | None:
        """The last attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def curve(self) -> list[tuple[int, dict[str, float]]]:
        """The last attempt's points: (step, metrics)."""
        return self.attempts[-1].curve if self.attempts else []

    def setting(self, path: str, default: Any = None) -> Any:
        """What the trial runs with at a dotted path; ``default`` where its settings have no such path."""
        return setting_at(self.settings, path, default)

    @property
    def bpb(self) -> float | None:
        """Round-trip bits per byte, of a trial that ran to its end (feasible or not); None otherwise."""
        outcome = self.outcome
        if outcome is None or outcome.kind not in (Kind.SCORED, Kind.INFEASIBLE):
            return None
        value = outcome.metrics.get("bpb/roundtrip")
        return value if value is not None and math.isfinite(value) else None

    @property
    def size_reserve(self) -> float:
        """Bytes that its size was judged larger by, for the sake of other seeds; see :mod:`golfray.sweep.fit`."""
        return self.attempt.size_reserve if self.attempt is not None else 0.0

    @property
    def bytes_total(self) -> float | None:
        """Bytes of code and artifact together; None where nothing was exported."""
        return None if self.outcome is None else self.outcome.metrics.get("bytes/total")


def configuration_of(settings: Mapping[str, Any]) -> str:
    """The configuration that a trial's settings are, as a text: the same for every seed of it."""
    return json.dumps(flat_configuration(settings), sort_keys=True)


def setting_at(settings: Any, path: str, default: Any = None) -> Any:
    """What stands at a dotted path of a trial's settings, as a log has them; ``default`` where nothing does."""
    node = settings
    for name in path.split("."):
        if not isinstance(node, dict) or name not in node:
            return default
        node = node[name]
    return node


def setting_paths(settings: Mapping[str, Any]) -> set[str]:
    """Every dotted path at which a value stands."""
    return {
        path
        for name, value in settings.items()
        for path in ([f"{name}.{inner}" for inner in value] if isinstance(value, dict) else [name])
    }
