"""The Executor that runs a study's jobs on Ray: session, broker, lanes and Tune, wired and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from types import TracebackType
from typing import Any

from golfray.cluster.environment import Session, start_session, stop_session
from golfray.cluster.preflight import LanePlan, plan_lanes
from golfray.sweep.executor import Finished, Job, JobEvent
from golfray.sweep.outcome import Kind, Outcome

RUN_TRIAL = "golfray.core.trial:run_trial"

_END_SECONDS = 15.0


class RayExecutor:
    """Runs attempts in lanes of ``workers`` ranks; implements :class:`golfray.sweep.executor.Executor`.

    ``study_folder``: the study's directory; Ray's token, logs and scratch lie in its ``ray`` folder, and a job's
    relative ``folder`` is meant below it. ``device``: "auto", "cpu" or "cuda". ``address``: an existing cluster, or
    None for a local one of the study's own, which may use ``cpus`` CPUs (None: all). ``max_lanes``: no more lanes
    than this, for a study with few trials. ``run``: what every rank calls for a job, as "module:function" with the
    signature of ``golfray.core.trial.run_trial``. ``cancel_grace_s``: how long a job that was asked to end may take
    before its lane is killed. ``silence_s``: a running job that reports nothing for this long counts as hung.

    Raises :class:`golfray.cluster.preflight.EnvironmentProblem` where Ray cannot run or not even one lane fits.
    Starting returns before the ranks are up; jobs may be submitted at once. Methods are called from one thread.
    """

    def __init__(
        self,
        study_folder: Path,
        workers: int,
        *,
        device: str = "auto",
        address: str | None = None,
        cpus: int | None = None,
        max_lanes: int | None = None,
        run: str = RUN_TRIAL,
        cancel_grace_s: float = 30.0,
        silence_s: float = 1800.0,
    ) -> None:
        self._study_folder = study_folder.resolve()
        self._cancel_grace_s = cancel_grace_s
        self._open: dict[str, Job] = {}
        self._known: set[str] = set()
        self._pending: list[JobEvent] = []
        self._failure: str | None = None
        self._closed = False
        self._lanes: list[Any] = []
        self._tune: Any = None
        self._broker: Any = None
        self._session: Session = start_session(self._study_folder, address, cpus)
        try:
            self._plan = self._start(workers, device, address, max_lanes, run, silence_s)
        except BaseException:
            self.close()
            raise

    def _start(
        self, workers: int, device: str, address: str | None, max_lanes: int | None, run: str, silence_s: float
    ) -> LanePlan:
        import ray

        plan = plan_lanes(ray.available_resources(), workers, device, max_lanes)
        # These import Train and with it torch, so only once the plan holds.
        from golfray.cluster.broker import Broker
        from golfray.cluster.lane import Lane
        from golfray.cluster.tune_bridge import TuneBridge

        names = [f"lane-{number}" for number in range(plan.slots)]
        actor = ray.remote(num_cpus=0, resources={"node:__internal_head__": 0.001})(Broker)
        self._broker = actor.remote(workers, names, self._cancel_grace_s, silence_s)
        self._broker.watch.remote()
        scratch = self._session.folder / "scratch"
        local = address is None
        self._lanes = [Lane(name, plan, self._broker, scratch, run, local) for name in names]
        for lane in self._lanes:
            lane.start()
        self._tune = TuneBridge(self._broker, plan.slots, scratch)
        self._tune.start()
        return plan

    @property
    def slots(self) -> int:
        """How many jobs run at once: one a lane."""
        return self._plan.slots

    def describe(self) -> list[str]:
        """Lines that say the concurrency, how it follows from the machine, and where Ray's files are."""
        return [*self._plan.describe(), *self._session.describe()]

    def submit(self, job: Job) -> None:
        """Queue a job. Raises ``ValueError`` on a job_id used before, ``RuntimeError`` once closed or broken."""
        import ray

        if self._closed or self._failure:
            reason = "the executor is closed" if self._closed else self._failure
            raise RuntimeError(f"no job can be submitted: {reason}")
        if job.job_id in self._known:
            raise ValueError(f"job {job.job_id} was submitted before; every attempt needs its own job_id")
        absolute = dataclasses.replace(job, folder=str(self._study_folder / job.folder))
        self._known.add(job.job_id)
        self._open[job.job_id] = job
        try:
            ray.get(self._broker.submit.remote(absolute))
        except ray.exceptions.RayError as error:
            self._fail(f"the broker died: {error}")

    def events(self, timeout: float) -> list[JobEvent]:
        """What happened since the last call, waiting up to ``timeout`` seconds for the first."""
        import ray

        if self._tune.failure and not self._closed:
            self._fail(f"Tune ended: {self._tune.failure}")
        if self._closed or self._failure or self._pending:
            events, self._pending = self._pending, []
            return events
        try:
            events = ray.get(self._broker.events.remote(timeout))
            self._note_processes(ray.get(self._broker.processes.remote()))
        except ray.exceptions.RayError as error:
            self._fail(f"the broker died: {error}")
            events, self._pending = self._pending, []
            return events
        return self._settle(events)

    def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end; it finishes as ``cancelled``, or as itself if it was faster.

        Raises ``ValueError`` for a job that was never submitted; a finished one is left alone.
        """
        import ray

        if job_id not in self._known:
            raise ValueError(f"job {job_id} was never submitted")
        if job_id not in self._open or self._closed or self._failure:
            return
        try:
            ray.get(self._broker.cancel.remote(job_id, reason))
        except ray.exceptions.RayError as error:
            self._fail(f"the broker died: {error}")

    def close(self) -> None:
        """End jobs, lanes, Tune and the cluster within the grace period plus about a minute; then nothing is left.

        Jobs that were open finish as ``cancelled``; :meth:`events` still tells so afterwards.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._broker is not None:
                self._end_jobs()
        finally:
            stop_session(self._session)
            self._fail("the executor was closed", Kind.CANCELLED)

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_jobs(self) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):  # a dead broker has ended everything already
            deadline = self._cancel_grace_s + _END_SECONDS
            with contextlib.suppress(ray.exceptions.GetTimeoutError):  # what is still open is closed as cancelled
                ray.get(self._broker.close.remote("the executor was closed"), timeout=deadline)
            self._pending.extend(self._settle(ray.get(self._broker.events.remote(0.0), timeout=_END_SECONDS)))
            for part in [*self._lanes, self._tune]:
                if part is not None:
                    part.join(_END_SECONDS)
            ray.kill(self._broker)

    def _settle(self, events: list[JobEvent]) -> list[JobEvent]:
        """Note which jobs have ended."""
        for event in events:
            if isinstance(event, Finished):
                del self._open[event.job_id]
        return events

    def _fail(self, reason: str, kind: Kind = Kind.CRASHED) -> None:
        """Nothing more will come from Ray: every open job ends with the reason."""
        self._failure = self._failure or reason
        self._pending.extend(Finished(job_id, Outcome(kind, reason)) for job_id in self._open)
        self._open.clear()

    def _note_processes(self, processes: list[dict[str, Any]]) -> None:
        """Keep which process is which rank, so that a reader finds its output in ``ray/logs``."""
        if processes:
            with (self._session.folder / "ranks.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(
                    json.dumps({**process, "log": f"logs/worker-*-{process['pid']}.out"}) + "\n"
                    for process in processes
                )
