"""One study from its first trial to its end: ask, submit, listen, log, tell.

The study drives: it decides what runs next and keeps as many jobs running as the executor has slots. Whatever happens
is written to the event log first; the record, the sampler and the observers are told afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import golfray
from golfray.config.errors import ConfigError
from golfray.sweep.events import LOG_NAME, EventLog
from golfray.sweep.executor import Executor, Finished, Job, JobEvent, Progress, Started
from golfray.sweep.observer import Observer
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.points import Point, planned_points
from golfray.sweep.records import REPLICATE, SAMPLER, StudyRecord
from golfray.sweep.sampler import StudySampler
from golfray.sweep.space import Space

# A machine on which the first three attempts crash will crash the rest too; a person must look.
_FIRST_ATTEMPTS = 3
# Refused configurations cost no time, so a space that gives nothing else would fill the log until the minutes are over.
_REFUSED_IN_A_ROW = 20

_POLL_SECONDS = 1.0


def create_study_folder(folder: Path) -> Path:
    """Make the folder of a study that is about to start, and return it.

    Raises ``ConfigError`` where it holds a study. A folder without one (an earlier start got no further) is used.
    """
    if (folder / LOG_NAME).exists():
        raise _existing_study(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(folder)) from error
    return folder


@contextlib.contextmanager
def only_driver_of(folder: Path) -> Iterator[None]:
    """Keep every other driver out of a study's folder, from before anything is started in it until all has ended.

    The log alone does not: it is opened once Ray runs, and a second start would have replaced the first one's token by
    then. The kernel lets go of the folder however this process ends. Raises ``ConfigError`` where another holds it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another golfray is at work here; wait until it has ended, or choose another folder with --study-dir",
                file=str(folder),
            ) from None
        yield
    finally:
        os.close(handle)


def _existing_study(folder: Path) -> ConfigError:
    return ConfigError(
        "holds a study already, and a study is never overwritten; give the space another name, choose another folder "
        "with --study-dir, or remove this one",
        file=str(folder),
    )


class Study:
    """Runs one space on one executor, in the folder that :func:`create_study_folder` made.

    ``bytes_code`` is the size of the packed script of this recipe. ``uniform_bpb`` is the score, in bits per byte, of
    the model that gives every token the same probability: what the sampler is told of a diverged trial. ``data`` is
    the dictionary of that name in ``study_started``. ``clock`` gives seconds for the budget's minutes.

    The caller owns the executor and closes it.
    """

    def __init__(
        self,
        space: Space,
        executor: Executor,
        folder: Path,
        *,
        bytes_code: int,
        uniform_bpb: float,
        data: Mapping[str, Any],
        observers: Sequence[Observer] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.record = StudyRecord()
        # Whether the study gave up, because nothing that it could try would have run.
        self.hopeless = False
        self._space = space
        self._executor = executor
        self._bytes_code = bytes_code
        self._uniform_bpb = uniform_bpb
        self._data = dict(data)
        self._observers = list(observers)
        self._clock = clock
        self._cap_bytes = space.base.config.cap_bytes
        self._planned = deque(planned_points(space))
        self._sampler = StudySampler(
            space.knobs,
            kind=space.sampler,
            seed=space.seed,
            cap_bytes=self._cap_bytes,
            uniform_bpb=uniform_bpb,
        )
        self._jobs: dict[str, tuple[int, int]] = {}
        self._running: set[str] = set()
        self._stop_reason: str | None = None
        self._refused_in_a_row = 0
        self._deadline = math.inf

    def run(self) -> StudyRecord:
        """Run until the budget is spent, the study is stopped, or it is hopeless; returns what the log says.

        An error of the executor, or an interruption, ends every running attempt and the study in the log before it is
        raised again. Raises ``ConfigError`` where the folder holds a study, ``EventLogError`` where another process
        writes one there; nothing is written then.
        """
        with EventLog(self.folder / LOG_NAME) as self._log:
            if self._log.records:
                raise _existing_study(self.folder)
            try:
                self._log_start()
                reason = self._drive()
                self._write("study_ended", reason=reason, complete=self._stop_reason is None)
            except BaseException as error:
                self._log_failure(error)
                raise
            finally:
                for observer in list(self._observers):
                    self._guarded(observer, observer.close)
        return self.record

    def stop(self, reason: str) -> None:
        """Ask no further trial and end the running ones cooperatively. The first reason stays.

        Only sets a flag, so that a signal handler may call it.
        """
        if self._stop_reason is None:
            self._stop_reason = reason

    def _drive(self) -> str:
        if self._space.minutes is not None:
            self._deadline = self._clock() + 60 * self._space.minutes
        cancelled: set[str] = set()
        while True:
            while len(self._running) < self._executor.slots and (point := self._next()) is not None:
                self._start(point)
            if not self._running:
                return self._end_reason()
            if self._stop_reason is not None:
                for job_id in self._running - cancelled:
                    self._executor.cancel(job_id, self._stop_reason)
                cancelled |= self._running
            for event in self._executor.events(_POLL_SECONDS):
                self._handle(event)

    def _next(self) -> Point | None:
        """The next point to run; None where nothing more may be asked now."""
        while self._stop_reason is None and self._clock() < self._deadline:
            if self._planned:
                return self._planned.popleft()
            if self._space.trials is not None and self._asked() >= self._space.trials:
                return None
            point = self._suggest()
            if point is not None:
                return point
        return None

    def _asked(self) -> int:
        """Trials that count against the budget: all but replicates, which measure noise and search nothing."""
        return sum(trial.role != REPLICATE for trial in self.record.trials)

    def _suggest(self) -> Point | None:
        number = len(self.record.trials)
        params = self._sampler.suggest(number)
        try:
            resolved = self._space.at(params)
        except ConfigError as error:
            self._refuse(number, params, str(error))
            return None
        self._refused_in_a_row = 0
        return Point(SAMPLER, resolved, params, told=True)

    def _refuse(self, number: int, params: dict[str, Any], why: str) -> None:
        """A combination of knobs that the configuration does not allow: the trial has crashed before it began."""
        seed = self._space.base.config.runtime.seed
        self._write_asked(number, SAMPLER, params, told=True, reason=None, settings=None, seed=seed, replicate_of=None)
        outcome = Outcome(Kind.CRASHED, f"configuration refused: {why}")
        job_id = self._job_id(number, 1)
        self._write("attempt_ended", trial=number, attempt=1, job_id=job_id, outcome=outcome.to_dict())
        self._sampler.tell(number, outcome, [])
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= _REFUSED_IN_A_ROW:
            self._give_up(f"{_REFUSED_IN_A_ROW} configurations in a row were refused, the last one: {why}")

    def _start(self, point: Point) -> None:
        number, attempt = len(self.record.trials), 1
        config = point.resolved.config
        settings = dataclasses.asdict(config.to_run_settings(self._bytes_code))
        if point.told and point.role != SAMPLER:
            self._sampler.place(number, point.params)
        self._write_asked(
            number,
            point.role,
            point.params,
            told=point.told,
            reason=point.told_reason,
            settings=settings,
            seed=config.runtime.seed,
            replicate_of=point.replicate_of,
        )
        relative = Path("trials") / f"{number:04d}" / f"attempt-{attempt}"
        folder = self.folder / relative
        folder.mkdir(parents=True)
        job_id = self._job_id(number, attempt)
        self._jobs[job_id] = (number, attempt)
        self._running.add(job_id)
        self._write("attempt_submitted", trial=number, attempt=attempt, job_id=job_id, folder=relative.as_posix())
        self._executor.submit(Job(job_id, settings, str(folder.resolve())))

    def _handle(self, event: JobEvent) -> None:
        if event.job_id not in self._jobs:
            raise RuntimeError(f"the executor reports a job that was never submitted: {event}")
        number, attempt = self._jobs[event.job_id]
        where = {"trial": number, "attempt": attempt, "job_id": event.job_id}
        match event:
            case Started():
                self._write("attempt_started", **where, lane=event.lane)
            case Progress():
                self._write("progress", **where, step=event.step, metrics=event.metrics)
            case Finished():
                if event.job_id not in self._running:
                    raise RuntimeError(f"the executor reports the end of a job twice: {event}")
                outcome = _checked(event.outcome, self._cap_bytes)
                self._write("attempt_ended", **where, outcome=outcome.to_dict())
                self._running.remove(event.job_id)
                trial = self.record.trials[number]
                if trial.told:
                    self._sampler.tell(number, outcome, trial.curve)
                self._give_up_if_hopeless()

    def _give_up_if_hopeless(self) -> None:
        ended = [trial for trial in self.record.trials if trial.settings is not None and trial.outcome is not None]
        crashes = [trial.outcome for trial in ended if trial.outcome and trial.outcome.kind is Kind.CRASHED]
        if len(ended) == len(crashes) == _FIRST_ATTEMPTS:
            self._give_up(f"all of the first {_FIRST_ATTEMPTS} attempts crashed, the last one: {crashes[-1].reason}")

    def _give_up(self, reason: str) -> None:
        self.hopeless = True
        self.stop(reason)

    def _end_reason(self) -> str:
        if self._stop_reason is not None:
            return self._stop_reason
        if self._clock() >= self._deadline:
            return f"budget spent: {self._space.minutes:g} minutes"
        return f"budget spent: {self._asked()} trials"

    def _log_start(self) -> None:
        space, config = self._space, self._space.base.config
        self._write(
            "study_started",
            study=space.name,
            golfray_version=golfray.__version__,
            space=space.to_dict(),
            preset=config.preset,
            scale=config.scale,
            workers=config.workers,
            budget={"trials": space.trials, "minutes": space.minutes},
            seed=space.seed,
            sampler=space.sampler,
            cap_bytes=self._cap_bytes,
            bytes_code=self._bytes_code,
            slots=self._executor.slots,
            describe=self._executor.describe(),
            data=self._data,
            uniform_bpb=self._uniform_bpb,
        )

    def _log_failure(self, error: BaseException) -> None:
        interrupted = isinstance(error, KeyboardInterrupt)
        reason = "interrupted" if interrupted else f"the study failed: {type(error).__name__}: {error}"
        outcome = Outcome(Kind.CANCELLED if interrupted else Kind.CRASHED, reason)
        for job_id in sorted(self._running):
            number, attempt = self._jobs[job_id]
            self._write("attempt_ended", trial=number, attempt=attempt, job_id=job_id, outcome=outcome.to_dict())
        self._running.clear()
        self._write("study_ended", reason=reason, complete=False)

    def _write_asked(
        self,
        number: int,
        role: str,
        params: dict[str, Any],
        *,
        told: bool,
        reason: str | None,
        settings: dict[str, Any] | None,
        seed: int,
        replicate_of: int | None,
    ) -> None:
        self._write(
            "trial_asked",
            trial=number,
            role=role,
            params=params,
            told=told,
            told_reason=reason,
            settings=settings,
            seed=seed,
            replicate_of=replicate_of,
        )

    def _write(self, event: str, **fields: Any) -> None:
        written = self._log.append(event, **fields)
        self.record.apply(written)
        for observer in list(self._observers):
            self._guarded(observer, functools.partial(observer.on_event, written))

    def _guarded(self, observer: Observer, call: Callable[[], None]) -> None:
        """An observer that fails is told nothing more, and the log says so: it must not touch the trials."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a tracker or a terminal may raise
            self._observers.remove(observer)
            self._write("observer_failed", observer=type(observer).__name__, error=f"{type(error).__name__}: {error}")

    def _job_id(self, number: int, attempt: int) -> str:
        return f"{self._space.name}-{number:04d}-{attempt}"


def _checked(outcome: Outcome, cap_bytes: int) -> Outcome:
    """The outcome as the log may have it: a score is a finite number at a known size within the cap."""
    if outcome.kind not in (Kind.SCORED, Kind.INFEASIBLE):
        return outcome
    score, total = (outcome.metrics.get(name, math.nan) for name in ("bpb/roundtrip", "bytes/total"))
    if not (math.isfinite(score) and math.isfinite(total)):
        why = f"reported as {outcome.kind} with bpb/roundtrip={score} and bytes/total={total}"
        return dataclasses.replace(outcome, kind=Kind.CRASHED, reason=why)
    if outcome.kind is Kind.SCORED and total > cap_bytes:
        why = f"{total - cap_bytes:.0f} bytes over the cap of {cap_bytes}"
        return dataclasses.replace(outcome, kind=Kind.INFEASIBLE, reason=why)
    return outcome
