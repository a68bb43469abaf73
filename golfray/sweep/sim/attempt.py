"""One attempt as it will have been: its events and when they come, from the law, its luck and its mishaps."""

from __future__ import annotations

import dataclasses
import math

from golfray.core.settings import RunSettings, settings_from_dict
from golfray.sweep.executor import Entered, Finished, Job, JobEvent, Progress, Started
from golfray.sweep.limits import OWN_TIME, PhaseLimits
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.sim.curve import nats, point, reported_steps
from golfray.sweep.sim.law import LAWS, Expected, Law, best_matrix_lr, expected_bpb
from golfray.sweep.sim.luck import Luck, Mishap, lane_factor, luck_of, mishap_of
from golfray.sweep.sim.simulation import LAW_VERSION, Simulation
from golfray.sweep.sim.sizes import expected_bytes
from golfray.sweep.sim.speed import phase_seconds, step_seconds, steps_of
from golfray.sweep.trial_record import setting_at

DEVICE = "simulated"
"""The device of a simulated fidelity: no real run has it, so none is ever ranked with one."""

# A rate that is too high shows within the first hundredths of a run.
_DIVERGES_AT = 0.05

Timeline = list[tuple[float, JobEvent]]
"""Seconds after the attempt began, and what happens then; in order, ``Started`` first and ``Finished`` last."""


@dataclasses.dataclass(frozen=True)
class _Run:
    law: Law
    settings: RunSettings
    workers: int
    steps: int
    step_s: float
    expected: Expected
    luck: Luck

    @property
    def tokens(self) -> float:
        return float(self.steps * self.settings.batch.tokens)

    def training(self, step: int) -> dict[str, float]:
        """What a run reports of its training after ``step`` steps."""
        last = point(self.law, self.settings, self.expected, self.luck, step=step, steps=self.steps, step_s=self.step_s)
        tokens = float(step * self.settings.batch.tokens)
        return {
            "train/loss": last["train/loss"],
            "train/steps": float(step),
            "train/tokens": tokens,
            "train/seconds": step * self.step_s,
            "train/step_ms": 1000 * self.step_s,
            "train/tokens_per_s": self.settings.batch.tokens / self.step_s,
        }

    @property
    def diverged_after(self) -> int | None:
        """The step after which the loss is no number; None where the rate is not too high."""
        limit = self.luck.limit * best_matrix_lr(self.law, self.tokens)
        return max(int(_DIVERGES_AT * self.steps), 1) if self.settings.optimizer.matrix_lr > limit else None


def simulate(simulation: Simulation, job: Job, lane: str, workers: int, limits: PhaseLimits) -> Timeline:
    """The events of one attempt. Raises ``TypeError`` where its settings have a name that no run knows."""
    settings = settings_from_dict(job.settings)
    law = LAWS[simulation.scale]
    usual_s = step_seconds(law, settings, workers) * lane_factor(simulation, lane)
    luck = luck_of(law, simulation, settings, job.settings, steps_of(settings, usual_s) * settings.batch.tokens)
    step_s = usual_s * luck.step
    steps = steps_of(settings, step_s)
    run = _Run(law, settings, workers, steps, step_s, expected_bpb(law, settings, steps), luck)
    phases = phase_seconds(law, settings, workers, steps, step_s)
    if luck.broken:
        return _broken(job, lane, phases)
    whole = _events(job, lane, run, phases)
    mishap = mishap_of(simulation, job.job_id)
    timeline = whole if mishap is None else _cut_off(job, whole, mishap, limits)
    return _within_limits(job, timeline, limits)


def _events(job: Job, lane: str, run: _Run, phases: dict[str, float]) -> Timeline:
    events: Timeline = [(0.0, Started(job.job_id, lane))]
    at, spent = 0.0, dict(phases)
    diverged = run.diverged_after
    for name, seconds in phases.items():
        events.append((at, Entered(job.job_id, name)))
        if name == "train":
            for step in reported_steps(run.settings, run.steps):
                if diverged is not None and step >= diverged:
                    break
                metrics = point(
                    run.law, run.settings, run.expected, run.luck, step=step, steps=run.steps, step_s=run.step_s
                )
                events.append((at + step * run.step_s, Progress(job.job_id, step, metrics)))
            if diverged is not None:
                spent = {**{known: spent[known] for known in ("data", "compile")}, name: diverged * run.step_s}
                at += spent[name]
                break
        at += seconds
    return [*events, (at, Finished(job.job_id, _outcome(run, spent)))]


def _outcome(run: _Run, phases: dict[str, float]) -> Outcome:
    settings, stop = run.settings, run.settings.stop
    fidelity = {
        "device": DEVICE,
        "dtype": DEVICE,
        "compiled": False,
        "workers": run.workers,
        "stop": "steps" if stop.seconds is None else "wallclock",
        "law": f"{run.law.name}-{LAW_VERSION}",
    }
    if run.diverged_after is not None:
        return Outcome(
            Kind.DIVERGED,
            f"the loss is not finite after step {run.diverged_after} (simulated)",
            metrics={**run.training(run.diverged_after), "train/loss": math.nan},
            phases=phases,
            fidelity=fidelity,
        )
    before = run.expected.prequant + run.luck.prequant
    after = before + run.expected.gap + 1.03 * run.luck.prequant - run.luck.prequant + run.luck.export
    model = round(expected_bytes(run.law, settings, run.steps) * run.luck.bytes)
    total = settings.bytes_code + model
    metrics = {
        **run.training(run.steps),
        "bpb/prequant": before,
        "val_loss/prequant": nats(run.law, before),
        "bpb/roundtrip": after,
        "val_loss/roundtrip": nats(run.law, after),
        "bytes/code": float(settings.bytes_code),
        "bytes/model": float(model),
        "bytes/total": float(total),
        "bytes/margin": float(settings.cap_bytes - total),
    }
    if run.expected.sliding is not None:
        metrics["bpb/sliding"] = run.expected.sliding + after - run.expected.roundtrip
    over = total - settings.cap_bytes
    return Outcome(
        Kind.INFEASIBLE if over > 0 else Kind.SCORED,
        f"bytes/total is {over} over the cap of {settings.cap_bytes} (simulated)"
        if over > 0
        else f"fits under the cap of {settings.cap_bytes} with {-over} bytes to spare (simulated)",
        metrics=metrics,
        phases=phases,
        fidelity=fidelity,
    )


def _broken(job: Job, lane: str, phases: dict[str, float]) -> Timeline:
    """The same error at the same place every time, before a first step."""
    after = phases["data"] + phases["compile"]
    outcome = Outcome(
        Kind.CRASHED,
        "out of memory (simulated)",
        phases={name: phases[name] for name in ("data", "compile")},
        error="simulated: out of memory at compile",
    )
    return [
        (0.0, Started(job.job_id, lane)),
        (0.0, Entered(job.job_id, "data")),
        (phases["data"], Entered(job.job_id, "compile")),
        (after, Finished(job.job_id, outcome)),
    ]


def _cut_off(job: Job, whole: Timeline, mishap: Mishap, limits: PhaseLimits) -> Timeline:
    """What had happened by then, and the end that came instead."""
    at = mishap.at * whole[-1][0]
    seen = [(when, event) for when, event in whole[:-1] if when <= at]
    entered = [(when, event.phase) for when, event in seen if isinstance(event, Entered)]
    phase = entered[-1][1]
    if mishap.kind == "hang":
        limit = limits.progress if phase == "train" else _limit(job, phase, limits)
        if limit is None:
            raise ValueError(f"an attempt that hangs in {phase} would never end: give limits.{phase}")
        at += limit
        reason, error = f"hung in {phase}: no report for {limit:g} s (simulated)", f"phase limit: {phase}"
    elif mishap.kind == "preempt":
        reason = error = "the node was taken away (simulated)"
    else:
        reason, error = f"a rank died in {phase} (simulated)", f"simulated: rank died in {phase} at {mishap.at:.6f}"
    kind = Kind.PREEMPTED if mishap.kind == "preempt" else Kind.CRASHED
    # Nothing is heard of an attempt that hangs, until its limit ends it.
    return _ended_at(job, [*seen, whole[-1]], at, kind, reason, error)


def _within_limits(job: Job, timeline: Timeline, limits: PhaseLimits) -> Timeline:
    """The same, unless a phase is longer than it may be: then that ends the attempt, as it does a real one."""
    entered = [(when, event.phase) for when, event in timeline if isinstance(event, Entered)]
    ends = [when for when, _ in entered[1:]] + [timeline[-1][0]]
    for (begun, phase), end in zip(entered, ends, strict=True):
        limit = _limit(job, phase, limits)
        if limit is not None and end - begun > limit:
            reason = f"hung in {phase}: it was not over for {limit:g} s (simulated)"
            return _ended_at(job, timeline, begun + limit, Kind.CRASHED, reason, f"phase limit: {phase}")
    return timeline


def _limit(job: Job, phase: str, limits: PhaseLimits) -> float | None:
    return limits.of(phase, setting_at(job.settings, OWN_TIME[phase]) if phase in OWN_TIME else None)


def _ended_at(job: Job, whole: Timeline, at: float, kind: Kind, reason: str, error: str) -> Timeline:
    """What had happened ``at`` seconds after the beginning, and then that end."""
    seen = [(when, event) for when, event in whole[:-1] if when <= at]
    entered = [(when, event.phase) for when, event in seen if isinstance(event, Entered)]
    last = next((event for _, event in reversed(seen) if isinstance(event, Progress)), None)
    ends = [when for when, _ in entered[1:]] + [at]
    outcome = Outcome(
        kind,
        reason,
        metrics={} if last is None else {"train/loss": last.metrics["train/loss"], "train/steps": float(last.step)},
        phases={name: end - when for (when, name), end in zip(entered, ends, strict=True)},
        error=error,
    )
    return [*seen, (at, Finished(job.job_id, outcome))]
