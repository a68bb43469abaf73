"""What a running study expects of a point's size, from its configuration and from what was measured so far."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

from golfray.core.settings import ModelSettings, RunSettings, StopSettings, settings_from_dict
from golfray.sweep.fit import Fit, fit_of, size_reserve
from golfray.sweep.outcome import Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.size_calibration import SizeCalibration, measured_size, measured_steps, size_run
from golfray.sweep.size_estimate import SizeEstimate, SizeModel
from golfray.sweep.trial_record import TrialRecord

# What a run that never ends by itself reads at most: beyond, every token has been met.
_ALL_TOKENS = 2**62


class TrainedSizes:
    """Sizes of models that would really be trained (:mod:`golfray.sweep.size`, which takes torch).

    What was foreseen once is kept, since every finished trial is foreseen again after the fact, to learn from it.
    """

    def __init__(self) -> None:
        self._estimates: dict[tuple[RunSettings, int], SizeEstimate] = {}
        self._unseen: dict[tuple[str, int], tuple[int, ...]] = {}

    def expect(self, settings: RunSettings, steps: int) -> SizeEstimate:
        """See :class:`golfray.sweep.size_estimate.SizeModel`, as for the others."""
        from golfray.sweep.size import expected_bytes_model

        # How large the script was, and which clock it had, decide nothing of the model.
        key = dataclasses.replace(settings, bytes_code=0, clock_trace=""), steps
        if key not in self._estimates:
            self._estimates[key] = expected_bytes_model(settings, steps, self._unseen_by(settings))
        return self._estimates[key]

    def depends_on_steps(self, settings: RunSettings) -> bool:
        """Where no formula has the size."""
        from golfray.sweep.size import depends_on_steps

        return depends_on_steps(settings)

    def parameters(self, model: ModelSettings) -> int:
        """Counted in a model that is built."""
        from golfray.sweep.size import parameter_shapes

        return sum(map(math.prod, parameter_shapes(model)))

    def _unseen_by(self, settings: RunSettings) -> tuple[int, ...]:
        from golfray.sweep.size import unseen_tokens

        folder, vocabulary = settings.data.folder, settings.model.vocab_size
        key = folder, vocabulary
        if key not in self._unseen:
            there = bool(folder) and Path(folder).is_dir()
            self._unseen[key] = unseen_tokens(Path(folder), vocabulary, _ALL_TOKENS) if there else ()
        return self._unseen[key]


@dataclasses.dataclass
class _Measured:
    """What finished trials that end alike say: of sizes, and the work (parameters, tokens) that they did, sorted."""

    sizes: SizeCalibration = dataclasses.field(default_factory=SizeCalibration)
    work: list[float] = dataclasses.field(default_factory=list)


class SizeForesight:
    """Foresees sizes for one study; ``level`` is its ``fit_probability``, ``bytes_code`` the packed script's size.

    Each finished trial of its record is looked at once, not at every question.
    """

    def __init__(self, level: float, bytes_code: int, sizes: SizeModel) -> None:
        self.level = level
        self._bytes_code = bytes_code
        self._sizes = sizes
        self._fidelity: tuple[str, float] | None = None
        self._ends_seen: int | None = None
        self._measured: dict[StopSettings, _Measured] = {}

    def fit(self, settings: RunSettings, record: StudyRecord) -> Fit | None:
        """Whether a trial of these settings will fit, corrected by what ``record`` measured.

        None where nothing can be said yet: the size depends on how many steps the run takes, which only a finished
        trial tells; or drawn weights cannot be exported, be it for want of the codec, which the trial itself will say.
        None under ``export.search`` too, which finds an export that fits.
        """
        if settings.export.search is not None:
            return None
        try:
            measured = self._of(settings.stop, record)
            steps = 1
            if self._sizes.depends_on_steps(settings):
                found = _steps_within(settings, measured.work, self._sizes)
                if found is None:
                    return None
                steps = found
            corrected = measured.sizes.corrected(settings.export, self._sizes.expect(settings, steps))
        except (ImportError, ValueError):
            return None
        return fit_of(corrected, self._bytes_code, settings.cap_bytes)

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
            spread = self._of(settings.stop, record).sizes.spread(settings.export)
        except (ImportError, ValueError, TypeError):
            return 0.0
        return size_reserve(size, spread, self.level)

    def _of(self, stop: StopSettings, record: StudyRecord) -> _Measured:
        """What the finished trials of ``record`` say of runs that end at ``stop``."""
        if self._ends_seen is None or record.fidelity != self._fidelity:
            # Which trials can be compared at all is known with the first one.
            self._fidelity, self._measured = record.fidelity, {}
            ended: Iterable[TrialRecord] = record.trials
        else:
            ended = (record.trials[number] for number in record.ends[self._ends_seen :])
        self._ends_seen = len(record.ends)
        for trial in ended:
            self._learn(trial, record)
        return self._measured.get(stop) or _Measured()

    def _learn(self, trial: TrialRecord, record: StudyRecord) -> None:
        run = size_run(record, trial, self._sizes.expect)
        if run is None or trial.settings is None:
            return
        settings = settings_from_dict(dict(trial.settings))
        measured = self._measured.setdefault(settings.stop, _Measured())
        measured.sizes.add(run)
        steps = measured_steps(trial)
        if steps is not None:
            bisect.insort(measured.work, steps * _work_of_step(settings, self._sizes))


def steps_of(settings: RunSettings, record: StudyRecord, sizes: SizeModel) -> int | None:
    """Steps that a run of these settings will take; None where only a finished trial could tell and there is none.

    A timed run takes as many as the finished ones took in that time, in proportion to the work of a step.
    """
    stop, found = dataclasses.asdict(settings.stop), []
    for trial in record.trials:
        steps = measured_steps(trial)
        if steps is None or measured_size(record, trial) is None or trial.setting("stop") != stop:
            continue
        try:
            found.append(steps * _work_of_step(settings_from_dict(dict(trial.settings or {})), sizes))
        except TypeError:
            continue  # a log of another version of golfray
    return _steps_within(settings, sorted(found), sizes)


def _steps_within(settings: RunSettings, work: list[float], sizes: SizeModel) -> int | None:
    """``work``: what the finished runs did in the time that this one has, sorted."""
    if settings.stop.seconds is None:
        return settings.stop.steps
    if not work:
        return None
    # Of a sorted list the middle is found at once.
    median = (work[(len(work) - 1) // 2] + work[len(work) // 2]) / 2
    timed = max(round(median / _work_of_step(settings, sizes)), 1)
    return timed if settings.stop.steps is None else min(timed, settings.stop.steps)


def _work_of_step(settings: RunSettings, sizes: SizeModel) -> float:
    return float(sizes.parameters(settings.model) * settings.batch.tokens)
