"""The Executor that runs a study's jobs on Ray: session, broker and host of the lanes, wired and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

from golfray.cluster.broker import Broker
from golfray.cluster.environment import VARIABLES, Session, start_session, stop_session
from golfray.cluster.equipment import Equipment
from golfray.cluster.errors import LONGEST_TEXT
from golfray.cluster.heartbeat import Heartbeat
from golfray.cluster.host import CALLS_AT_ONCE, Host
from golfray.cluster.node_checks import check_nodes
from golfray.cluster.node_data import needed_files
from golfray.cluster.nodes import RayNodes, holding
from golfray.cluster.preflight import EnvironmentProblem, LanePlan, plan_lanes
from golfray.cluster.recycling import Recycling
from golfray.core.settings import DataSettings
from golfray.sweep.executor import Finished, Holding, Job, JobEvent
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.node_rules import NodeRules
from golfray.sweep.outcome import Kind, Outcome

_END_SECONDS = 15.0
_SERVICES = "the study's broker or the host of its lanes"
# They only pass words on, so they answer in milliseconds; a machine that is short of everything, in seconds.
_ANSWER_SECONDS = 120.0


class RayExecutor:
    """Runs attempts in lanes of ``workers`` ranks; implements :class:`golfray.sweep.executor.Executor`.

    ``study_folder``: the study's directory; Ray's token, logs and scratch lie in its ``ray`` folder, and a job's
    relative ``folder`` is meant below it. ``device``: "auto", "cpu" or "cuda". ``address``: an existing cluster, or
    None for a local one of the study's own, which may use ``cpus`` CPUs (None: all). ``max_lanes``: no more lanes
    than this, for a study with few trials. ``data``: what the jobs will read, checked on every node before anything
    runs; None leaves it unchecked. ``run``: what every rank calls for a job, as "module:function" with the signature of
    ``golfray.core.trial.run_trial``; None: what the job's settings need. ``limits``: a job that is longer in a phase
    counts as hung (None: the usual ones). ``rules``: what is asked of nodes, and kept on them (None: nothing).
    ``cancel_grace_s``: how long a job that was asked to end may take before its lane is killed. ``recycling``: when a
    lane's ranks are started anew between two jobs (None: the usual limits).

    A cluster at an ``address`` may grow and shrink: nodes that join get lanes, a lane that loses its node waits for
    another one, and :attr:`slots` follows. After a quarter of an hour without room for any lane the executor gives up.

    Raises :class:`golfray.cluster.preflight.EnvironmentProblem` where Ray cannot run, not even one lane fits, or a node
    lacks the data or cannot write. Starting returns before the ranks are up; jobs may be submitted at once. Once Ray or
    a part of it that a study cannot do without has ended, :meth:`submit` and :meth:`events` raise that error too.
    Methods are called from one thread.
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
        data: DataSettings | None = None,
        run: str | None = None,
        limits: PhaseLimits | None = None,
        rules: NodeRules | None = None,
        cancel_grace_s: float = 30.0,
        recycling: Recycling | None = None,
    ) -> None:
        self._recycling = recycling or Recycling()
        self._local = address is None
        self._news: list[str] = []
        self._holding: Holding
        self._study_folder = study_folder.resolve()
        self._cancel_grace_s = cancel_grace_s
        self._open: dict[str, Job] = {}
        self._known: set[str] = set()
        self._pending: list[JobEvent] = []
        self._failure: str | None = None
        self._closed = False
        self._broker: Any = None
        self._host: Any = None
        self._watched: list[Any] = []
        self._heartbeat = Heartbeat(local=address is None)
        self._session: Session = start_session(self._study_folder, address, cpus)
        try:
            self._plan = self._start(
                workers, device, max_lanes, data, run, limits or PhaseLimits(), rules or NodeRules()
            )
            self._slots = self._plan.slots
            self._holding = holding()
        except BaseException:
            self.close(at_once=True)
            raise

    def _start(
        self,
        workers: int,
        device: str,
        max_lanes: int | None,
        data: DataSettings | None,
        run: str | None,
        limits: PhaseLimits,
        rules: NodeRules,
    ) -> LanePlan:
        import ray

        plan = plan_lanes(ray.available_resources(), workers, device, max_lanes)
        local = self._local
        files = None if data is None else needed_files(data, summed=not local or rules.mirror is not None)
        # Where they are mirrored, nodes get the data when a lane forms there.
        check_nodes(plan, files if rules.mirror is None else None, self._study_folder, local)
        equipment = Equipment(files, rules, ray.get_runtime_context().get_node_id())
        scratch = self._session.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)  # an earlier driver's
        names = [f"lane-{number}" for number in range(plan.slots)]
        on_head: dict[str, Any] = {"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}}
        broker = ray.remote(**on_head)(Broker)
        self._broker = broker.remote(
            workers, names, self._cancel_grace_s, limits, self._study_folder, RayNodes(), rules.refuse_slower
        )
        # Processes of a cluster of our own have the variables from its servers. On another one Train's guard of what
        # its controller holds would look for a cluster on its machine, and end where that is not the only one there.
        named = {**VARIABLES, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        variables = {} if local else {"runtime_env": {"env_vars": named}}
        host = ray.remote(**on_head, **variables, max_concurrency=CALLS_AT_ONCE)(Host)
        self._host = host.remote(self._broker, plan, names, scratch, run, local, equipment, self._recycling)
        # Neither ends before the study does, unless it fails.
        self._watched = [self._broker.watch.remote(), self._host.tune_failure.remote()]
        return plan

    @property
    def slots(self) -> int:
        """How many jobs run at once: one a lane. Where none is left for now, one waits for it."""
        return max(self._slots, 1)

    def news(self) -> list[str]:
        """What happened to lanes since the last call: added, lost, their ranks started anew."""
        news, self._news = self._news, []
        return news

    @property
    def holding(self) -> Holding:
        """All nodes of the cluster with all their GPUs, whether lanes use them or not."""
        return self._holding

    def hold_until(self, moment: float) -> None:
        """See :class:`golfray.sweep.executor.Executor`: what the timers of the nodes are told."""
        self._heartbeat.hold_until = moment

    def describe(self) -> list[str]:
        """Lines that say the concurrency, how it follows from the machine, and where Ray's files are."""
        return [*self._plan.describe(), *self._session.describe(), *self._heartbeat.describe()]

    def submit(self, job: Job) -> None:
        """Queue a job. Raises ``ValueError`` on a job_id used before, ``RuntimeError`` once closed."""
        if self._closed:
            raise RuntimeError("no job can be submitted: the executor is closed")
        if job.job_id in self._known:
            raise ValueError(f"job {job.job_id} was submitted before; every attempt needs its own job_id")
        self._check_cluster()
        absolute = dataclasses.replace(job, folder=str(self._study_folder / job.folder))
        self._known.add(job.job_id)
        self._open[job.job_id] = job
        self._ask("submit", absolute)

    def events(self, timeout: float) -> list[JobEvent]:
        """What happened since the last call, waiting up to ``timeout`` seconds for the first."""
        if not self._closed:
            self._check_cluster()
            self._heartbeat.beat()
            events = self._settle(self._ask("events", timeout, wait_s=timeout))
            self._slots, news = self._ask("lanes")
            self._news += news
            # Asked of the cluster itself, that waits for a minute where its head has died, and Ray ends the process.
            self._holding = self._ask("holding") or self._holding
            return events
        events, self._pending = self._pending, []
        return events

    def cancel(self, job_id: str, reason: str) -> None:
        """Ask a job to end; it finishes as ``cancelled``, or as itself if it was faster.

        Raises ``ValueError`` for a job that was never submitted; a finished one is left alone.
        """
        if job_id not in self._known:
            raise ValueError(f"job {job_id} was never submitted")
        if job_id in self._open and not self._closed and self._failure is None:
            self._ask("cancel", job_id, reason)

    def close(self, at_once: bool = False) -> None:
        """End jobs, lanes, Tune and the cluster within the grace period plus about a minute; then nothing is left.

        ``at_once``: without asking anybody, within seconds. Jobs that were open finish as ``cancelled``; :meth:`events`
        still tells so afterwards.
        """
        if self._closed:
            return
        self._closed = True
        broken = self._failure is not None
        try:
            if self._host is not None and not at_once and not broken:
                self._end_jobs()
                self._heartbeat.done()
        finally:
            stop_session(self._session, broken)
            ended = Outcome(Kind.CANCELLED, self._failure or "the executor was closed")
            self._pending.extend(Finished(job_id, ended) for job_id in self._open)
            self._open.clear()

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Who interrupts the study itself, and not only its jobs, does not want to wait for them.
        self.close(at_once=isinstance(error, KeyboardInterrupt))

    def _end_jobs(self) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):  # a dead broker has ended everything already
            deadline = self._cancel_grace_s + _END_SECONDS
            with contextlib.suppress(ray.exceptions.GetTimeoutError):  # what is still open is closed as cancelled
                ray.get(self._broker.close.remote("the executor was closed"), timeout=deadline)
            self._pending.extend(self._settle(ray.get(self._broker.events.remote(0.0), timeout=_END_SECONDS)))
            with contextlib.suppress(ray.exceptions.GetTimeoutError):  # what has not ended ends with the cluster
                ray.get(self._host.join.remote(_END_SECONDS), timeout=2 * _END_SECONDS)
            for actor in (self._host, self._broker):
                ray.kill(actor)

    def _settle(self, events: list[JobEvent]) -> list[JobEvent]:
        """Note which jobs have ended."""
        for event in events:
            if isinstance(event, Finished):
                del self._open[event.job_id]
        return events

    def _ask(self, method: str, *arguments: Any, wait_s: float = 0.0) -> Any:
        return self._answer(getattr(self._broker, method).remote(*arguments), wait_s + _ANSWER_SECONDS)

    def _answer(self, reference: Any, limit_s: float) -> Any:
        """What an actor of ours says. Raises :class:`EnvironmentProblem` where it died or does not answer."""
        import ray

        try:
            return ray.get(reference, timeout=limit_s)
        except ray.exceptions.GetTimeoutError:
            raise self._broken(f"{_SERVICES} has not answered for {limit_s:g} s") from None
        except ray.exceptions.RayTaskError:
            raise  # not Ray's: an error in the actor's own code
        except ray.exceptions.RayError as error:
            words = " ".join(str(error).split())[:LONGEST_TEXT]
            raise self._broken(self._dead_server() or f"{_SERVICES} died: {words}") from error

    def _check_cluster(self) -> None:
        """Raises :class:`EnvironmentProblem` where a part without which nothing more can run has ended."""
        import ray

        if self._failure is not None:
            raise EnvironmentProblem(self._failure)
        if (dead := self._dead_server()) is not None:
            raise self._broken(dead)
        for ended in ray.wait(self._watched, num_returns=len(self._watched), timeout=0)[0]:
            raise self._broken(self._answer(ended, _ANSWER_SECONDS) or "the broker or Tune ended by itself")

    def _dead_server(self) -> str | None:
        return self._session.servers.dead() if self._session.servers is not None else None

    def _broken(self, reason: str) -> EnvironmentProblem:
        """Nothing more will come from Ray."""
        self._failure = f"{reason}; `golfray tune --resume {self._study_folder}` goes on from the event log"
        return EnvironmentProblem(self._failure)
