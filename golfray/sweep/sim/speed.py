"""How long a simulated attempt takes: milliseconds a step, and the seconds of every phase.

Milliseconds a step of eight H100, least squares over R01, R04 to R07, R11, R12 and R14 to R16 of parameter_golf.md
(residuals up to 8 ms):

    21.5 + batch (12.8 matrix weights + 49.4 layers x width x sequence) / 1e13

A gang of W does the second term in 8/W of the time. The laptop's line is 91 ms a step of its preset on two cores:
docs/log.md, "What a study takes", 165 steps in 15 s.
"""

from __future__ import annotations

import dataclasses

from golfray.core.settings import RunSettings
from golfray.sweep.sim.law import Law, attention_weights, mlp_weights, parameter_count


@dataclasses.dataclass(frozen=True)
class Machine:
    """Speed of one kind of machine.

    ``fixed_ms`` a step, ``matrix_ms`` and ``attention_ms`` for 1e13 products on ``workers``. ``compile_s``, ``data_s``;
    ``export_s`` for a million parameters, ``score_ms`` for a thousand tokens. ``val_tokens`` of the text.
    """

    workers: int
    fixed_ms: float
    matrix_ms: float
    attention_ms: float
    data_s: float
    compile_s: float
    export_s: float
    score_ms: float
    val_tokens: int


MACHINES = {
    # Compiling: entrants lose two to four minutes of ten to boot and compile (anchors.md, section 3, rank 10); a warm
    # lane keeps half a minute. Validation: section 3.5 has its tokens; R08's 70 s are sixteen of it.
    "full": Machine(8, 21.5, 12.8, 49.4, 2.0, 30.0, 0.25, 0.07, 62_021_632),
    # docs/log.md, "What a study takes": 1.2 s compile, 2.0 s validate, .1 s export; a million parameters take .3 s.
    "laptop": Machine(2, 10.0, 1.03e6, 1.03e6, 0.02, 1.2, 0.3, 13.0, 154_000),
}


def step_seconds(law: Law, settings: RunSettings, workers: int) -> float:
    """Seconds of one optimizer step on a machine that is neither slow nor in luck."""
    machine, model = MACHINES[law.name], settings.model
    weights = model.num_layers * (attention_weights(model) + mlp_weights(model)) + model.vocab_size * model.model_dim
    attention = model.num_layers * model.model_dim * settings.batch.seq_len
    work = settings.batch.tokens * (machine.matrix_ms * weights + machine.attention_ms * attention) / 1e13
    return (machine.fixed_ms + work * machine.workers / workers) / 1000


def steps_of(settings: RunSettings, step_s: float) -> int:
    """Optimizer steps of a run: until its time is over, which the last one ends after, or its steps are done."""
    stop = settings.stop
    seconds = None if stop.seconds is None else stop.seconds - _reserved(settings)
    limits = [] if stop.steps is None else [stop.steps]
    if seconds is not None:
        limits.append(max(int(seconds / step_s) + 1, 1))
    return min(limits)


def phase_seconds(law: Law, settings: RunSettings, workers: int, steps: int, step_s: float) -> dict[str, float]:
    """Seconds of every phase in its order."""
    machine = MACHINES[law.name]
    score = machine.score_ms * machine.val_tokens / 1e6 * machine.workers / workers
    phases = {
        "data": machine.data_s,
        "compile": machine.compile_s,
        "train": steps * step_s,
        "validate": score * (1 if settings.averaging.method == "none" else 2),
    }
    if settings.export.gptq:
        phases["calibrate"] = settings.export.gptq_reserve_seconds
    phases["export"] = machine.export_s * parameter_count(settings.model) / 1e6
    phases["score"] = score
    stride = settings.evaluation.sliding_stride
    if stride is not None:
        limit = settings.evaluation.sliding_seconds
        phases["sliding"] = min(score * settings.batch.seq_len / stride, limit or float("inf"))
    return phases


def _reserved(settings: RunSettings) -> float:
    return settings.export.gptq_reserve_seconds if settings.export.gptq else 0.0
