"""What a study takes in seconds besides the training that was asked for, and how that is known.

A finished study of the same kind knows best (:mod:`golfray.sweep.past_studies`). Without one, this machine's CPUs
rehearse a few steps, and for GPUs the reference's published speed is taken. What it takes to start Ray, to compile and
to end cannot be tried out in advance: that is from earlier measurements, in docs/log.md under "What a study takes".
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

from golfray.core.frontier import training_stop
from golfray.core.settings import RunSettings
from golfray.sweep.compile_cache import cache_folder, compiled_before
from golfray.sweep.export_search import SearchPlan
from golfray.sweep.export_space import ExportSpace
from golfray.sweep.rehearsal import rehearse
from golfray.sweep.size import parameter_shapes
from golfray.sweep.space import Space

# Seconds on two cores with little else to do.
OPEN_S = 9.5
LANES_S = 14.0
CLOSE_S = 7.0
HANDOVER_S = 0.5
DATA_S = 0.02
COMPILE_NEW_S = 40.0
COMPILE_FIRST_S = 7.0
COMPILE_AGAIN_S = 0.8
BUILD_S = 0.1
REPORT_S = 0.008
EXPORT_S_PER_PARAMETER = 1.2e-7
# Quantizing and compressing of a search of 200 settings, on one CPU.
SEARCH_S_PER_PARAMETER = 9e-5

# How much faster a compiled step is: 1.29 times on two ranks, 1.46 times on one.
COMPILED_SPEEDUP = 1.35

# The baseline on eight H100, by its published log; a forward pass is a third of a step's work.
GPU_TOKENS_PER_S = 524_288 / 0.0435 / 8
GPU_PARAMETERS = 17_059_912
GPU_SCORE_SPEEDUP = 3.0

# Opening and closing are in part waiting, which a busy machine does as fast as an idle one.
_OPEN_GROWS = 0.75
_CLOSE_GROWS = 0.5
_CONTENTION = 0.3

# Knobs that change what is compiled, be it a shape or a number that is written into the program.
_COMPILED_IN = ("model.", "batch.")
_NOT_COMPILED_IN = ("model.tied_embed_init_std", "model.qk_gain_init", "batch.val_tokens")

_EARLIER = "starting, compiling, handing over and ending are assumed as measured earlier on two CPU cores"


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a study.

    ``open_s``: from the command to the study's first record. ``lanes_s``: from there to the first trial. ``phases``:
    those of a trial, in their order. ``compile_first_s``: a lane's first trial has it in place of ``compile``.
    ``handover_s``: from a trial's end to the next one's start. ``close_s``: from the study's last record to the end of
    the command. ``steps``: optimizer steps that a trial takes. ``sources``: lines that say how all this is known.
    """

    open_s: float
    lanes_s: float
    phases: dict[str, float]
    compile_first_s: float
    handover_s: float
    close_s: float
    steps: int
    sources: tuple[str, ...]

    @property
    def trial_s(self) -> float:
        """From a trial's start to that of the next in its lane."""
        return sum(self.phases.values()) + self.handover_s

    @property
    def first_extra_s(self) -> float:
        """How much longer a lane's first trial takes than the others."""
        return max(self.compile_first_s - self.phases["compile"], 0.0)


@dataclasses.dataclass(frozen=True)
class Work:
    """What one trial of a study computes: its settings, its gang, and what it is scored on.

    ``device`` is "cpu" or "cuda". ``compiled``: whether the step is. ``shapes_vary``: whether trials differ in what is
    compiled, so that each compiles anew.
    """

    settings: RunSettings
    workers: int
    device: str
    compiled: bool
    shapes_vary: bool
    parameters: int
    val_tokens: int

    def steps(self, step_s: float) -> int:
        """Optimizer steps that fit into the run at ``step_s`` seconds each."""
        stop = training_stop(self.settings)
        within = None if stop.seconds is None else max(round(stop.seconds / step_s), 1)
        return min(limit for limit in (stop.steps, within) if limit is not None)

    def train_s(self, step_s: float) -> float:
        """Seconds of the phase: the steps, the last of which ends after the time is over, and the reports."""
        steps, stop = self.steps(step_s), training_stop(self.settings)
        by_steps = steps * step_s
        training = by_steps if stop.seconds is None else min(by_steps, stop.seconds) + step_s / 2
        return training + REPORT_S * min(steps, self.settings.runtime.log_points)


def work_of(space: Space, device: str, val_tokens: int, threads: int) -> tuple[Work, dict[str, Any]]:
    """The work of a study's trial 0 on ``device``, and the fidelity that its trials will report."""
    import torch

    from golfray.core.gang import Gang
    from golfray.core.runtime import choose_runtime
    from golfray.core.trial import fidelity

    config = space.base.config
    settings = config.to_run_settings(0)
    gang = Gang(0, config.workers, torch.device(device))
    runtime = choose_runtime(settings, gang)
    work = Work(
        settings=settings,
        workers=config.workers,
        device=device,
        compiled=runtime.compiled,
        shapes_vary=any(
            knob.path.startswith(_COMPILED_IN) and knob.path not in _NOT_COMPILED_IN for knob in space.knobs
        ),
        parameters=sum(map(math.prod, parameter_shapes(settings.model))),
        val_tokens=val_tokens,
    )
    return work, fidelity(settings, gang, runtime.dtype, runtime.compiled) | {"threads": threads}


def rehearsed_costs(work: Work, lanes: int) -> Costs:
    """Costs on this machine's CPUs as they are now. Raises :class:`golfray.sweep.rehearsal.RehearsalFailed`."""
    found = rehearse(work.settings, work.workers, lanes)
    slower = contention(found.slowdown, work.workers * lanes)
    eager_s = found.step_s(work.settings, work.workers) * slower
    step_s = eager_s / COMPILED_SPEEDUP if work.compiled else eager_s
    score_s = found.score_s_per_token * work.val_tokens / work.workers * slower
    guess = f", taken to be {COMPILED_SPEEDUP:g} times as fast compiled" if work.compiled else ""
    busy = f"; others use this machine too, so all takes {slower:.1f} times as long" if slower >= 1.25 else ""
    said = (
        f"measured here just now: {1000 * eager_s:.0f} ms a step that is not compiled{guess}; {score_s:.1f} s a "
        f"validation{busy}",
        _EARLIER,
    )
    return _costs(work, step_s, score_s, slower, said)


def contention(slowdown: float, ranks: int) -> float:
    """How much longer than on an idle machine a study will take for what it computes, at least 1.

    Two signs of what others do: the slowdown of the last seconds, and how many processes would share a CPU by the load
    average of the last minutes with ``ranks`` more. Both are usually nearer to 1 over a whole study than they are at
    one moment, so their product counts with an exponent that was fitted to studies on a busy machine.
    """
    load = min(os.getloadavg()[:2])
    shared = (load + ranks) / len(os.sched_getaffinity(0))
    return (max(slowdown, 1.0) * max(shared, 1.0)) ** _CONTENTION


def published_costs(work: Work) -> Costs:
    """Costs on GPUs, from what is published of the reference on eight H100; nothing is measured."""
    tokens_per_s = GPU_TOKENS_PER_S * GPU_PARAMETERS / work.parameters
    step_s = work.settings.batch.tokens / work.workers / tokens_per_s
    score_s = work.val_tokens / work.workers / (tokens_per_s * GPU_SCORE_SPEEDUP)
    said = (
        f"not measured: {1000 * step_s:.0f} ms a step and {score_s:.1f} s a validation are the published speed of the "
        "baseline on H100s, scaled by parameters and workers; other GPUs differ, a finished study here will know",
        _EARLIER,
    )
    return _costs(work, step_s, score_s, 1.0, said)


def _costs(work: Work, step_s: float, score_s: float, slowdown: float, sources: tuple[str, ...]) -> Costs:
    settings = work.settings
    build_s = BUILD_S + max(settings.schedule.warmup_steps, int(work.compiled)) * step_s
    first = again = build_s
    if work.compiled:
        folder = cache_folder()
        known = compiled_before(settings, folder)
        first += (COMPILE_FIRST_S if known else COMPILE_NEW_S) * slowdown
        again += (COMPILE_NEW_S if work.shapes_vary else COMPILE_AGAIN_S) * slowdown
        sources += (
            f"a model of these shapes was {'' if known else 'never '}compiled on this machine before ({folder})",
        )
    phases = {
        "data": DATA_S,
        "compile": again,
        "train": work.train_s(step_s),
        # Live weights are scored too, where others are exported.
        "validate": score_s * (1 if settings.averaging.method == "none" else 2),
        **({"calibrate": _calibrate_s(work, score_s)} if settings.export.gptq else {}),
        **({"search": _search_s(work, score_s, slowdown)} if settings.export.search is not None else {}),
        "export": EXPORT_S_PER_PARAMETER * work.parameters * slowdown,
        "score": score_s,
    }
    evaluation, batch = settings.evaluation, settings.batch
    if evaluation.sliding_stride is not None:
        sliding_s = score_s * batch.seq_len / evaluation.sliding_stride
        phases["sliding"] = min(sliding_s, evaluation.sliding_seconds or math.inf)
    return Costs(
        open_s=OPEN_S * slowdown**_OPEN_GROWS,
        lanes_s=LANES_S * slowdown,
        phases=phases,
        compile_first_s=max(first, again),
        handover_s=HANDOVER_S * slowdown,
        close_s=CLOSE_S * slowdown**_CLOSE_GROWS,
        steps=work.steps(step_s),
        sources=sources,
    )


def _calibrate_s(work: Work, score_s: float) -> float:
    """Rank 0 sees these tokens alone; the products of a layer's inputs are about as much work as the layer."""
    batch = work.settings.batch
    tokens = work.settings.export.gptq_batches * batch.tokens / batch.slices
    return 2 * tokens * score_s * work.workers / work.val_tokens


def _search_s(work: Work, score_s: float, slowdown: float) -> float:
    """Rank 0 works alone: on its GPU, or on CPUs with those of the other ranks as well, and so do its codecs."""
    export, tries = work.settings.export, work.settings.export.search or 0
    plan = SearchPlan(ExportSpace(gptq=(False, True) if export.gptq else (False,)), settings=tries)
    tokens = plan.scored_sequences() * work.settings.batch.seq_len
    scoring_s = tokens * score_s / work.val_tokens * (1 if work.device == "cpu" else work.workers)
    return scoring_s + SEARCH_S_PER_PARAMETER * work.parameters * slowdown * tries / 200 / work.workers
