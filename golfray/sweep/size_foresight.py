"""What a running study expects of a point's size, from its configuration and from what was measured so far."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

from golfray.core.settings import RunSettings, settings_from_dict
from golfray.sweep.fit import Fit, fit_of, size_reserve
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.size import (
    SizeEstimate,
    depends_on_steps,
    expected_bytes_model,
    parameter_shapes,
    unseen_tokens,
)
from golfray.sweep.size_calibration import SizeCalibration, measured_size, measured_steps, size_runs
from golfray.sweep.trial_record import TrialRecord

# What a run that never ends by itself reads at most: beyond, every token has been met.
_ALL_TOKENS = 2**62


class SizeForesight:
    """Foresees sizes for one study; ``level`` is its ``fit_probability``, ``bytes_code`` the packed script's size.

    What was foreseen once is kept, since every finished trial is foreseen again after the fact, to learn from it.
    """

    def __init__(self, level: float, bytes_code: int) -> None:
        self.level = level
        self._bytes_code = bytes_code
        self._estimates: dict[tuple[RunSettings, int], SizeEstimate] = {}
        self._unseen: dict[tuple[str, int], tuple[int, ...]] = {}

    def fit(self, settings: RunSettings, record: StudyRecord) -> Fit | None:
        """Whether a trial of these settings will fit, corrected by what ``record`` measured.

        None where nothing can be said yet: the size depends on how many steps the run takes, which only a finished
        trial tells; or drawn weights cannot be exported, be it for want of the codec, which the trial itself will say.
        None under ``export.search`` too, which finds an export that fits.
        """
        if settings.export.search is not None:
            return None
        steps = steps_of(settings, record) if depends_on_steps(settings) else 1
        if steps is None:
            return None
        try:
            estimate = self._predict(settings, steps)
            corrected = self.calibration(settings, record).corrected(settings.export, estimate)
        except (ImportError, ValueError):
            return None
        return fit_of(corrected, self._bytes_code, settings.cap_bytes)

    def calibration(self, settings: RunSettings, record: StudyRecord) -> SizeCalibration:
        """What the finished trials of ``record`` say of runs that end where these settings do."""
        return SizeCalibration(size_runs(record, dataclasses.asdict(settings.stop), self._predict))

    def reserve(self, trial: TrialRecord, outcome: Outcome, record: StudyRecord) -> float:
        """Bytes that another seed of a trial that ended with ``outcome`` may be larger by, at the level.

        0 where it has no size, or a search has fitted it to the cap. The spread is that of the runs that ended before.
        """
        if trial.setting("export.search") is not None:
            return 0.0
        size = outcome.metrics.get("bytes/model", math.nan)
        if trial.settings is None or not math.isfinite(size) or "bpb/roundtrip" not in outcome.metrics:
            return 0.0
        try:
            settings = settings_from_dict(dict(trial.settings))
            spread = self.calibration(settings, record).spread(settings.export)
        except (ImportError, ValueError, TypeError):
            return 0.0
        return size_reserve(size, spread, self.level)

    def _predict(self, settings: RunSettings, steps: int) -> SizeEstimate:
        # How large the script was, and which clock it had, decide nothing of the model.
        key = dataclasses.replace(settings, bytes_code=0, clock_trace=""), steps
        if key not in self._estimates:
            self._estimates[key] = expected_bytes_model(settings, steps, self._unseen_by(settings))
        return self._estimates[key]

    def _unseen_by(self, settings: RunSettings) -> tuple[int, ...]:
        folder, vocabulary = settings.data.folder, settings.model.vocab_size
        key = folder, vocabulary
        if key not in self._unseen:
            there = bool(folder) and Path(folder).is_dir()
            self._unseen[key] = unseen_tokens(Path(folder), vocabulary, _ALL_TOKENS) if there else ()
        return self._unseen[key]


def steps_of(settings: RunSettings, record: StudyRecord) -> int | None:
    """Steps that a run of these settings will take; None where only a finished trial could tell and there is none.

    A timed run takes as many as the finished ones took in that time, in proportion to the work of a step.
    """
    if settings.stop.seconds is None:
        return settings.stop.steps
    stop, found = dataclasses.asdict(settings.stop), []
    for trial in record.trials:
        steps = measured_steps(trial)
        if steps is None or measured_size(record, trial) is None or trial.setting("stop") != stop:
            continue
        try:
            found.append(steps * _work_of_step(settings_from_dict(dict(trial.settings or {}))))
        except TypeError:
            continue  # a log of another version of golfray
    if not found:
        return None
    timed = max(round(statistics.median(found) / _work_of_step(settings)), 1)
    return timed if settings.stop.steps is None else min(timed, settings.stop.steps)


def _work_of_step(settings: RunSettings) -> float:
    return float(sum(map(math.prod, parameter_shapes(settings.model))) * settings.batch.tokens)
