"""``golfray status``: where a study stands, read from its log alone, whether a driver writes it or not."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from golfray.config.sizes import count_text, size_text
from golfray.report.cost import cost_document, cost_line, forecast_document, study_forecast, time_words
from golfray.report.documents import running_entry, study_document
from golfray.report.lane_time import lane_time_line
from golfray.report.lookup import FoundStudy
from golfray.report.numbers import bpb_text, bytes_text, margin_text, seconds_text
from golfray.report.progress import (
    counts_words,
    ended_trials,
    planned_trials,
    position_of,
    running_trials,
    study_seconds_left,
    too_large_words,
)
from golfray.report.summary import chosen_words, resume_command
from golfray.sweep.choosing import best_feasible, choose
from golfray.sweep.forecast import Forecast
from golfray.sweep.records import StudyRecord
from golfray.sweep.regret import stopped_trials
from golfray.sweep.statistics import claim
from golfray.sweep.stopping import LATE_CHECK
from golfray.sweep.study_folder import Driver, driver_of, is_held
from golfray.sweep.trial_record import TrialRecord

# A driver is at work; the study came to its end; or neither: it was interrupted, or its driver is gone.
RUNNING = "running"
ENDED = "ended"
INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True)
class StudyStatus:
    """A study, the process at work on it, and when that was asked.

    ``held`` is whether one is at work; ``driver`` who it says it is, None where it has not signed. It need not drive
    the study: `golfray track` only keeps drivers out while it reads the log.
    """

    study: FoundStudy
    held: bool
    driver: Driver | None
    now: float

    @classmethod
    def of(cls, study: FoundStudy, now: float) -> StudyStatus:
        """Look at the lock and the folder of a study that was read from its log; ``now`` is in unix seconds."""
        held = is_held(study.folder)
        driver = driver_of(study.folder) if held else None
        return cls(study, held, driver, now)

    @property
    def record(self) -> StudyRecord:
        """What the log says."""
        return self.study.record

    @property
    def driven(self) -> bool:
        """Whether a driver runs trials. One that has not signed yet, within its first moments, counts as one."""
        return self.held and (self.driver is None or self.driver.drives)

    @property
    def condition(self) -> str:
        """``RUNNING``, ``ENDED`` or ``INTERRUPTED``."""
        if self.driven:
            return RUNNING
        return ENDED if self.record.complete else INTERRUPTED

    @property
    def ended(self) -> int:
        """How many of the budget's trials have ended."""
        return ended_trials(self.record)

    @property
    def planned(self) -> int | None:
        """How many there will be; None where trials are not what limits the study."""
        return planned_trials(self.record)

    def document(self) -> dict[str, Any]:
        """The document of the kind "status"."""
        record = self.record
        return {
            **study_document(record, self.study.folder),
            "condition": self.condition,
            "driver": None if self.driver is None else dataclasses.asdict(self.driver),
            "planned": self.planned,
            "ended": self.ended,
            "running": [running_entry(trial) for trial in running_trials(record)],
            "seconds_left": study_seconds_left(record, self.now) if self.driven else None,
            "cost": cost_document(record, self._until),
            "forecast": forecast_document(self._forecast),
            "last_event_age_s": max(self.now - (record.last_event or self.now), 0.0),
            "disk_bytes": disk_bytes(self.study.folder),
            "next_command": self.next_command(),
        }

    def next_command(self) -> str | None:
        """What to type next; None while a process holds the study, and where there is nothing to go on with."""
        folder, best = self.study.folder, best_feasible(self.record)
        if self.held:
            return None
        if self.condition == INTERRUPTED:
            return resume_command(self.record, folder)
        if self.condition == ENDED and best is not None:
            return f"golfray show trial {shlex.quote(str(folder / f't{best.number:03d}'))}"
        return None

    def lines(self) -> list[str]:
        """For a person, a fact a line."""
        record, header = self.record, self.record.header
        cost, lane_time = cost_line(record, self._until, self._forecast), lane_time_line(record)
        lines = [
            f"study {record.name} in {self.study.folder}: {self._condition_words()}",
            f"  {header['preset']} at scale {header['scale']}, {count_text(header['workers'], 'worker')} a trial, "
            f"{record.generations[-1].now.slots} at once, cap {record.cap_bytes:,} bytes",
            *(["  SIMULATED: no model was trained, and no number here is evidence"] if record.simulation else []),
            f"trials: {self._trials_words()}",
            *(f"  {self._running_words(trial)}" for trial in running_trials(record)),
            f"best feasible: {self._best_words()}",
            *(f"  {words}" for words in chosen_words(choose(record))),
            f"seed noise: {claim(record).noise}",
            *([stopped_trials(record).words()] if record.stopping == LATE_CHECK else []),
            f"time: {self._time_words()}",
            *([] if lane_time is None else [lane_time]),
            *([] if cost is None else [cost]),
            f"disk: {size_text(disk_bytes(self.study.folder))}",
        ]
        command = self.next_command()
        return lines if command is None else [*lines, f"next: {command}"]

    @property
    def _until(self) -> float | None:
        """Until when its nodes are held; None: its last record says it."""
        return self.now if self.driven else None

    @property
    def _forecast(self) -> Forecast | None:
        return study_forecast(self.record, self.now) if self.driven else None

    def _condition_words(self) -> str:
        if self.condition == RUNNING:
            return f"running, by {self.driver or 'a process that has not signed yet'}"
        held = f"; at work on it: {self.driver}" if self.held else ""
        if self.condition == ENDED:
            return f"ended, {self.record.end_reason}{held}"
        return f"stopped before its end: {self.record.end_reason or 'its driver is gone'}{held}"

    def _trials_words(self) -> str:
        record = self.record
        of_all = "" if self.planned is None else f" of {self.planned}"
        counts = counts_words(record) or "none asked yet"
        too_large = sum(trial.too_large for trial in record.trials)
        counts += f"; {too_large_words(too_large)}" if too_large else ""
        again = sum(len(trial.attempts) > 1 for trial in record.trials)
        more = f"; {again} with more than one attempt" if again else ""
        return f"{self.ended}{of_all} ended; {counts}{more}"

    def _running_words(self, trial: TrialRecord) -> str:
        again = f", attempt {len(trial.attempts)}" if len(trial.attempts) > 1 else ""
        words = f"t{trial.number:03d} {trial.role}{again}"
        position = position_of(trial)
        if position is None:
            return words
        if not self.driven:
            return f"{words}: was in {position.phase} when the driver went"
        words += f": {position.phase} for {seconds_text(max(self.now - position.since, 0.0))}"
        if position.step is not None:
            words += f", step {position.step:,}"
        if position.share is not None:
            words += f", {100 * position.share:.0f}% trained"
        return words if position.loss is None else f"{words}, loss {position.loss:.4f}"

    def _best_words(self) -> str:
        record, best = self.record, best_feasible(self.record)
        if best is None or best.bytes_total is None:
            return "none so far"
        return (
            f"t{best.number:03d} ({best.role}), {bpb_text(best.bpb)} bits per byte, {bytes_text(best.bytes_total)} "
            f"bytes, margin {margin_text(record.cap_bytes - best.bytes_total)}"
        )

    def _time_words(self) -> str:
        record = self.record
        last = record.last_event or self.now
        since = max(self.now - last, 0.0)
        words = f"{seconds_text(record.driven_seconds + (since if self.driven else 0.0))} at work"
        found = self._forecast
        if found is not None:
            words += f"; left: {time_words(found)}, drawn from {count_text(found.known, 'trial')} of it"
        return f"{words}; last event {seconds_text(since)} ago"


def disk_bytes(folder: Path) -> int:
    """Bytes that the files below a folder take on the disk; what goes away while we look counts as nothing."""
    total = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            try:
                total += 512 * os.lstat(os.path.join(parent, name)).st_blocks
            except FileNotFoundError:
                continue
    return total
