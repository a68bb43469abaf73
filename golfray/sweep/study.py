"""One study from its first trial to its end: ask, submit, listen, log, tell; once more where something fails.

The study drives: it keeps as many jobs running as the executor has slots. What runs next is the business of
:mod:`golfray.sweep.agenda`, how it is written down that of :mod:`golfray.sweep.journal`. Whatever happens is written to
the event log first; the record, the sampler and the observers are told afterwards, so a driver that takes over can know
everything that this one knew.
"""

from __future__ import annotations

import dataclasses
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import golfray
from golfray.sweep.agenda import Agenda, job_name
from golfray.sweep.budget import Allowance, Booked, Price, allowance, booked, booked_before, check_first
from golfray.sweep.confirmation import Confirmation, ask_confirmations
from golfray.sweep.estimate import running_words
from golfray.sweep.events import LOG_NAME, EventLogError
from golfray.sweep.executor import Entered, Executor, Finished, Holding, Job, JobEvent, Progress, Started
from golfray.sweep.journal import Journal
from golfray.sweep.observer import Observer
from golfray.sweep.outcome import Kind, Outcome
from golfray.sweep.records import StudyRecord
from golfray.sweep.resume import take_over
from golfray.sweep.retry import DRIVER_LOST, JUDGED_ENDS, is_judged, runs_again, why_hopeless
from golfray.sweep.size_estimate import SizeModel
from golfray.sweep.size_foresight import SizeForesight, TrainedSizes
from golfray.sweep.space import Space
from golfray.sweep.stopping import LATE_CHECK, as_stopped, is_audited, look
from golfray.sweep.study_folder import StudyFolderError, existing_study
from golfray.sweep.transitions import Stage, next_stage
from golfray.sweep.trial_record import TrialRecord
from golfray.sweep.unbroken import Unbroken

_POLL_SECONDS = 1.0


class Study:
    """Runs one space on one executor, in a folder of its own (see :mod:`golfray.sweep.study_folder`).

    ``bytes_code`` is the size of the packed script of this recipe. ``uniform_bpb`` is the score, in bits per byte, of
    the model that gives every token the same probability: what the sampler is told of a diverged trial. ``data`` is
    the dictionary of that name in ``study_started``; ``tracking_uri`` is where MLflow is, None for the study's own
    file, which the log keeps for whoever resumes. ``clock`` gives seconds for the budget's minutes, ``now`` unix
    seconds for the log. ``simulation`` is None unless nothing of this is real: then the log says so and does not wait
    for the disk, since all of it can be simulated again. ``sizes`` foresees them (None: those of real models).
    ``price`` is that of a node, None where nobody knows it; ``held_since``, in unix seconds, is when the command began
    that drives this study (None: now).

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
        tracking_uri: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        simulation: Mapping[str, Any] | None = None,
        sizes: SizeModel | None = None,
        price: Price | None = None,
        held_since: float | None = None,
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
        self._tracking_uri = tracking_uri
        self._clock = clock
        self._now = now
        self._simulation = None if simulation is None else dict(simulation)
        self._price = price
        self._held_since = now() if held_since is None else held_since
        self._cap_bytes = space.base.config.cap_bytes
        self._unbroken = Unbroken()
        self._foresight = SizeForesight(space.fit_probability, bytes_code, sizes or TrainedSizes())
        self._journal: Journal
        self._agenda: Agenda
        self._allowed: Allowance
        self._held: tuple[int, Holding]
        self._generation: int
        self._jobs: dict[str, tuple[int, int]] = {}
        self._stages: dict[str, Stage] = {}
        self._running: set[str] = set()
        # Only those that decide whether to go on: a study may have thousands.
        self._ends: deque[Outcome] = deque(maxlen=JUDGED_ENDS)
        self._end_reason: str | None = None
        self._cancelling = False

    def run(self) -> StudyRecord:
        """Start the study and run until the budget is spent, it is stopped, or it is hopeless; returns its record.

        An error of the executor, or an interruption, ends every running attempt and the study in the log before it is
        raised again; those attempts are run again where the study is resumed. Where the log itself fails, every job is
        cancelled and the error raised. Raises ``ConfigError`` where the folder holds a study or the budget cannot be
        reckoned with, ``BudgetTooSmall`` where it holds not one attempt more, ``EventLogError`` (``LogUnwritable``,
        ``StudyLocked``) where the log cannot be written or is another's, ``StudyFolderError`` where an attempt's folder
        cannot be made.
        """
        return self._conduct(None)

    def resume(self, changes: Sequence[str] = ()) -> StudyRecord:
        """Go on with the study that the folder holds, as :meth:`run` would have, from where its last driver left it.

        ``changes``: what :func:`golfray.sweep.space_diff.allowed_changes` returned; the log keeps it. Raises
        ``EventLogError`` where there is no study to resume or its log is damaged, and what :meth:`run` raises.
        """
        return self._conduct(changes)

    def confirm(self, plan: Sequence[Confirmation], changes: Sequence[str] = ()) -> StudyRecord:
        """Run trials of the folder's study again on fresh seeds, and the confirmations that were left unfinished.

        The search rests meanwhile: where it had not come to its end, :meth:`resume` goes on with it. ``changes`` and
        what is raised: as there.
        """
        return self._conduct(changes, plan)

    def drain(self, reason: str) -> None:
        """Start nothing more and let the running trials end by themselves. The first reason stays.

        Only sets a flag, so that a signal handler may call it; so does :meth:`stop`.
        """
        if self._end_reason is None:
            self._end_reason = reason

    def stop(self, reason: str) -> None:
        """Start nothing more and end the running trials cooperatively. The first reason stays."""
        self.drain(reason)
        self._cancelling = True

    def leave(self, error: BaseException) -> None:
        """Raise ``error`` from a signal handler, as soon as the record that is being written is whole."""
        self._unbroken.interrupt(error)

    def running_words(self) -> str:
        """What runs and how long it may still take, for a person who waits for it."""
        return running_words(self.record, self._now())

    def _conduct(self, changes: Sequence[str] | None, plan: Sequence[Confirmation] | None = None) -> StudyRecord:
        log, real = self.folder / LOG_NAME, self._simulation is None
        with Journal(log, self._observers, self._unbroken, now=self._now, synced=real) as self._journal:
            self.record = self._journal.record
            self._generation = self.record.generation + 1
            self._check_log(resuming=changes is not None)
            searched = plan is None or self.record.complete
            self._held = self._executor.slots, self._executor.holding
            self._allowed = self._allowance(booked(self.record), self._held_since)
            check_first(self._allowed, self._first_settings(), self._now(), confirms=plan is not None)
            self._executor.hold_until(self._allowed.until)
            try:
                if changes is None:
                    self._journal.write(
                        "study_started", study=self._space.name, generation=self._generation, **self._in_force()
                    )
                else:
                    take_over(self._journal, self._space, changes, self._in_force())
                    ask_confirmations(self._journal, plan or ())
                self._agenda = Agenda(
                    self._space,
                    self._journal,
                    self._foresight,
                    self._allowed,
                    bytes_code=self._bytes_code,
                    uniform_bpb=self._uniform_bpb,
                    clock=self._clock,
                    now=self._now,
                    confirming=plan is not None,
                )
                reason = self._drive()
                complete = self._end_reason is None and searched
                self._journal.write("study_ended", reason=reason, complete=complete, hopeless=self.hopeless)
            except EventLogError as error:
                self._cancel_all(str(error))
                raise
            except BaseException as error:
                self._log_failure(error)
                raise
        return self.record

    def _allowance(self, spent: Booked, since: float) -> Allowance:
        """Until when the nodes that are held ``since`` then may be, where ``spent`` was booked before."""
        slots, holding = self._held
        return allowance(
            self._space.budget,
            self._space.limits,
            self._first_settings(),
            spent,
            holding,
            self._price,
            held_since=since,
            slots=slots,
            confirmed=self.record.confirmed,
        )

    def _first_settings(self) -> dict[str, Any]:
        return dataclasses.asdict(self._space.base.config.to_run_settings(self._bytes_code))

    def _check_log(self, *, resuming: bool) -> None:
        if not resuming and self.record.header:
            raise existing_study(self.folder)
        if resuming and not self.record.header:
            raise EventLogError(f"{self.folder / LOG_NAME}: no study has started here, so there is none to resume")

    def _drive(self) -> str:
        cancelled: set[str] = set()
        while True:
            self._fill()
            if not self._running:
                return self._end_reason or self._agenda.spent()
            if not self._cancelling and self._allowed.is_over(self._now()):
                self.stop(f"{self._allowed.cap} are all but booked, and what runs has not ended within its limits")
            if self._cancelling:
                for job_id in self._running - cancelled:
                    self._executor.cancel(job_id, str(self._end_reason))
                cancelled |= self._running
            events = self._executor.events(_POLL_SECONDS)
            self._note_lanes()
            for event in events:
                self._handle(event)

    def _note_lanes(self) -> None:
        """Write down what the executor holds and runs at once from now on, where that has changed, and budget by it."""
        slots, holding, news = self._executor.slots, self._executor.holding, self._executor.news()
        if not news and (slots, holding) == self._held:
            return
        self._held = slots, holding
        self._journal.write("lanes_changed", slots=slots, holding=dataclasses.asdict(holding), news=news)
        since = self.record.generations[-1].now.since
        self._allowed = self._allowance(booked_before(self.record, since), since)
        self._executor.hold_until(self._allowed.until)
        self._agenda.allow(self._allowed)

    def _fill(self) -> None:
        while self._end_reason is None and len(self._running) < self._executor.slots:
            trial = self._agenda.next()
            if self._agenda.hopeless is not None:
                self._give_up(self._agenda.hopeless)
            if self._agenda.nothing_fits is not None:
                # Nothing is wrong with what runs.
                self.drain(self._agenda.nothing_fits)
            if trial is None:
                return
            self._submit(trial)

    def _submit(self, trial: TrialRecord) -> None:
        assert trial.settings is not None, "a refused configuration is never run"
        attempt, relative = self._free_attempt(trial)
        folder = self.folder / relative
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyFolderError(f"{folder}: cannot be made: {error.strerror}") from error
        job_id = job_name(self._space.name, trial.number, attempt)
        self._jobs[job_id] = (trial.number, attempt)
        self._stages[job_id] = Stage.SUBMITTED
        self._journal.write(
            "attempt_submitted", trial=trial.number, attempt=attempt, job_id=job_id, folder=relative.as_posix()
        )
        self._running.add(job_id)
        # Since an earlier driver asked the trial, the data may have moved and the script changed; both were named then.
        data = dataclasses.asdict(self._space.base.config.to_run_settings(self._bytes_code).data)
        settings = {**trial.settings, "data": data, "bytes_code": self._bytes_code}
        self._executor.submit(Job(job_id, settings, str(folder.resolve())))

    def _free_attempt(self, trial: TrialRecord) -> tuple[int, Path]:
        """Number and folder of the trial's next attempt: never one that holds something, which the log has lost."""
        number = 1 if trial.attempt is None else trial.attempt.number + 1
        while True:
            relative = Path("trials") / f"{trial.number:04d}" / f"attempt-{number}"
            folder = self.folder / relative
            if not folder.exists() or not any(folder.iterdir()):
                return number, relative
            number += 1

    def _handle(self, event: JobEvent) -> None:
        self._stages[event.job_id] = next_stage(self._stages.get(event.job_id), event)
        number, attempt = self._jobs[event.job_id]
        where = {"trial": number, "attempt": attempt, "job_id": event.job_id}
        match event:
            case Started():
                nodes = [node.to_dict() for node in event.nodes]
                self._journal.write("attempt_started", **where, lane=event.lane, nodes=nodes)
            case Entered():
                self._journal.write("phase", **where, phase=event.phase)
            case Progress():
                self._journal.write("progress", **where, step=event.step, metrics=event.metrics)
                self._look(self.record.trials[number], where)
            case Finished():
                self._finish(self.record.trials[number], where, event.outcome.held_to(self._cap_bytes))

    def _look(self, trial: TrialRecord, where: Mapping[str, Any]) -> None:
        """Stop the trial that has just reported where the study's rule says so."""
        if self._space.stopping != LATE_CHECK or (found := look(self.record, trial)) is None or not found.hopeless:
            return
        audited = is_audited(self._space.seed, trial.number)
        self._journal.write("late_check", **where, **dataclasses.asdict(found), audited=audited, reason=found.words())
        if not audited:
            self._executor.cancel(where["job_id"], found.words())

    def _finish(self, trial: TrialRecord, where: Mapping[str, Any], outcome: Outcome) -> None:
        assert trial.attempt is not None
        outcome = as_stopped(trial.attempt, outcome)
        again = runs_again(
            outcome,
            [before.outcome for before in trial.attempts[:-1] if before.outcome is not None],
            made_progress=trial.attempt.made_progress,
            errors_at_start=self.record.errors_at_start,
            stopping=self._cancelling,
        )
        reserve = self._foresight.reserve(trial, outcome, self.record)
        self._journal.end_attempt(**where, outcome=outcome, final=not again, size_reserve=reserve)
        self._running.remove(where["job_id"])
        if again:
            self._agenda.run_again(trial)
        else:
            self._agenda.tell(trial)
        if is_judged(outcome):
            self._ends.append(outcome)
        hopeless = why_hopeless(self._ends)
        if hopeless is not None:
            self._give_up(hopeless)

    def _give_up(self, reason: str) -> None:
        # A study that is being ended already ends for that reason.
        if self._end_reason is None:
            self.hopeless = True
            self.stop(reason)

    def _in_force(self) -> dict[str, Any]:
        """What ``study_started`` says and ``study_resumed`` says again, as it may have changed."""
        space, config = self._space, self._space.base.config
        return {
            "golfray_version": golfray.__version__,
            "host": socket.gethostname(),
            "space": space.to_dict(),
            "preset": config.preset,
            "scale": config.scale,
            "workers": config.workers,
            "budget": space.budget.to_dict(),
            "price": None if self._price is None else dataclasses.asdict(self._price),
            "holding": dataclasses.asdict(self._held[1]),
            "held_since": self._held_since,
            "seed": space.seed,
            "sampler": space.sampler,
            "cap_bytes": self._cap_bytes,
            "bytes_code": self._bytes_code,
            "slots": self._held[0],
            "describe": self._executor.describe(),
            "simulation": self._simulation,
            "data": self._data,
            "uniform_bpb": self._uniform_bpb,
            "limits": dataclasses.asdict(space.limits),
            "tracking_uri": self._tracking_uri,
        }

    def _log_failure(self, error: BaseException) -> None:
        """End in the log what runs no more. None of it was a trial's fault, so a resumed study runs all of it again."""
        if isinstance(error, KeyboardInterrupt):
            reason = self._end_reason or "interrupted"
            outcome = Outcome(Kind.CANCELLED, reason)
        else:
            reason = f"the study failed: {type(error).__name__}: {error}"
            outcome = Outcome(Kind.PREEMPTED, reason, error=DRIVER_LOST)
        if self.record.generation < self._generation or self.record.end_reason is not None:
            # The log has nothing of this driver yet, or its end already.
            return
        try:
            for trial, attempt in self.record.open_attempts:
                end = as_stopped(attempt, outcome)
                self._journal.end_attempt(trial.number, attempt.number, attempt.job_id, end, final=attempt.is_stopped)
            self._running.clear()
            self._journal.write("study_ended", reason=reason, complete=False, hopeless=False)
        except EventLogError as unwritten:
            # The error that is on its way came first; whoever resumes finds these attempts open, and runs them.
            error.add_note(str(unwritten))

    def _cancel_all(self, reason: str) -> None:
        """Nothing that still runs can be written down: let the executor end it."""
        for job_id in sorted(self._running):
            self._executor.cancel(job_id, reason)
