"""The sizes to expect of a configuration, or of the points that a space runs anyway; nothing is trained."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from golfray.core.settings import RunSettings
from golfray.sweep.costs import GPU_PARAMETERS, GPU_TOKENS_PER_S
from golfray.sweep.fit import Fit, fit_of
from golfray.sweep.records import StudyRecord
from golfray.sweep.size import depends_on_steps, expected_bytes_model, parameter_shapes
from golfray.sweep.size_calibration import SeedSpread, SizeCalibration, size_runs
from golfray.sweep.size_estimate import SizeEstimate
from golfray.sweep.size_foresight import TrainedSizes, steps_of

# Parameters times tokens in a second of one CPU worker: 150 steps of the laptop preset in 15 seconds on two cores.
_CPU_WORK_PER_S = 3.5e9

# Speeds differ by about so much either way from one machine to another.
_STEPS_APART = 4


@dataclasses.dataclass(frozen=True)
class SizeOutlook:
    """What is expected of one configuration.

    ``steps``: optimizer steps that it was foreseen for, None where they do not matter; ``steps_known``: whether they
    were told or measured rather than guessed. ``spread``: how far seeds lie apart. ``learned_from``: how many measured
    configurations corrected the estimate.
    """

    role: str
    steps: int | None
    steps_known: bool
    estimate: SizeEstimate
    fit: Fit
    spread: SeedSpread
    learned_from: int


def size_outlook(
    role: str,
    settings: RunSettings,
    *,
    unseen: Sequence[int],
    steps: int | None,
    guessed_steps: int,
    record: StudyRecord | None,
) -> SizeOutlook:
    """What to expect of ``settings``, whose ``bytes_code`` is set.

    ``steps``: as a person gave them; else those of ``record``'s finished trials or of the configuration; else
    ``guessed_steps``, with an error that also covers runs of a quarter and of four times as many. ``record``: a study
    by whose trials the estimate is corrected. Raises ``ImportError`` where the codec is needed and not installed.
    """
    own = steps or steps_of(settings, record or StudyRecord(), TrainedSizes())
    matters, known = depends_on_steps(settings), own is not None
    count = own if own is not None else guessed_steps

    def predict(other: RunSettings, after: int) -> SizeEstimate:
        return expected_bytes_model(other, after, unseen)

    estimate = predict(settings, count)
    if matters and not known:
        sizes = [predict(settings, max(count // _STEPS_APART, 1)).bytes, predict(settings, count * _STEPS_APART).bytes]
        apart = max(abs(size / estimate.bytes - 1) for size in sizes)
        estimate = dataclasses.replace(estimate, relative_error=estimate.relative_error + apart)
    runs = [] if record is None else size_runs(record, dataclasses.asdict(settings.stop), predict)
    calibration = SizeCalibration(runs)
    corrected = calibration.corrected(settings.export, estimate)
    return SizeOutlook(
        role=role,
        steps=count if matters else None,
        steps_known=known,
        estimate=corrected,
        fit=fit_of(corrected, settings.bytes_code, settings.cap_bytes),
        spread=calibration.spread(settings.export),
        learned_from=calibration.configurations(settings.export),
    )


def guessed_steps(settings: RunSettings, workers: int, *, gpu: bool) -> int:
    """Steps of a timed run, by the published speed of the reference on GPUs or by one measured on two CPU cores."""
    if settings.stop.seconds is None:
        assert settings.stop.steps is not None
        return settings.stop.steps
    parameters = sum(map(math.prod, parameter_shapes(settings.model)))
    work_per_s = workers * (GPU_TOKENS_PER_S * GPU_PARAMETERS if gpu else _CPU_WORK_PER_S)
    steps = max(round(settings.stop.seconds * work_per_s / parameters / settings.batch.tokens), 1)
    return steps if settings.stop.steps is None else min(steps, settings.stop.steps)
