"""A lane: one TorchTrainer whose ranks stay up and run the broker's jobs one after another.

Starting ranks takes many seconds, a job handed to ranks that are up a few milliseconds. The price is that a process
lives through many trials: between two jobs a rank frees what the last one held and goes back to one known state, so
that a job's result does not depend on its predecessors. A rank that raises or dies takes its lane down; Train starts
all ranks anew. Where Train itself fails, the lane starts another trainer.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import os
import random
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import ray
import ray.train
from ray.exceptions import RayError
from ray.train.torch import TorchTrainer
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group

from golfray.cluster.bad_tokens import BAD_TOKEN, describe_bad_token
from golfray.cluster.deaths import count_oom_kills
from golfray.cluster.entries import load_run, run_of
from golfray.cluster.equipment import Equipment, leave_driver_paths, on_mirror
from golfray.cluster.errors import describe_error, error_identity
from golfray.cluster.formation import form
from golfray.cluster.patient_calls import ask
from golfray.cluster.preflight import LanePlan
from golfray.cluster.rank_cache import RankCache, compile_counts
from golfray.cluster.rank_output import output_into, rank_log
from golfray.cluster.ranks import RankError, RankProcess, Seat, rank_error
from golfray.cluster.recycling import RankMemory, Recycling, device_bytes, resident_bytes
from golfray.cluster.stacks import allow_inspection
from golfray.core.settings import DataSettings, settings_from_dict
from golfray.sweep.compile_cache import cache_folder
from golfray.sweep.executor import Job

# Start-up problems (no room, a rank that does not come up) are tried again this often before the lane is given up.
_START_RETRIES = 2


class RankFailed(RuntimeError):
    """Ends a rank, which makes Train start the lane anew; carries words, nothing to unpickle.

    Raised after its job did, and where it should run no more of them.
    """


class Lane:
    """Runs the trainers of one lane in a thread of the host until the broker sends its ranks home."""

    def __init__(
        self,
        name: str,
        plan: LanePlan,
        broker: Any,
        scratch: Path,
        run: str | None,
        local: bool,
        equipment: Equipment,
        recycling: Recycling,
    ) -> None:
        self.name = name
        self._recycling = recycling
        self._plan = plan
        self._broker = broker
        self._scratch = scratch
        self._run = run
        self._equipment = equipment
        # Ranks of a cluster of our own are on this machine: what they say to each other stays on loopback.
        self._network = {"GLOO_SOCKET_IFNAME": "lo"} if local else {}
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        """Begin bringing the ranks up; returns at once."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the ranks are gone, ``timeout`` seconds at most."""
        self._thread.join(timeout)

    def _serve(self) -> None:
        for number in itertools.count():
            reason = "its ranks went home"
            try:
                self._trainer(f"{self.name}-{number}").fit()
            except Exception as error:  # noqa: BLE001  whatever ends a lane is the reason its jobs are told
                reason = f"ended by {describe_error(error)}"
            try:
                again, held = ray.get(self._broker.lane_ended.remote(self.name, reason))
            except RayError:
                return  # the broker ended first: nobody is left to be told
            if not again:
                return
            if held is not None:
                # Train frees it too, but not always before the next trainer has waited for it in vain.
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(held))))

    def _trainer(self, name: str) -> TorchTrainer:
        plan = self._plan
        return TorchTrainer(
            serve_jobs,
            train_loop_config={
                "lane": self.name,
                "broker": self._broker,
                "run": self._run,
                "device": plan.device,
                "equipment": self._equipment,
                "recycling": self._recycling,
            },
            scaling_config=ray.train.ScalingConfig(
                num_workers=plan.workers,
                use_gpu=plan.device == "cuda",
                resources_per_worker=dict(plan.resources_per_worker),
            ),
            run_config=ray.train.RunConfig(
                name=name,
                storage_path=str(self._scratch),
                failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=_START_RETRIES),
                callbacks=[FailureNotice(self.name, self._broker)],
                worker_runtime_env={"env_vars": {"OMP_NUM_THREADS": str(plan.threads_per_worker), **self._network}},
            ),
        )


class FailureNotice(ray.train.UserCallback):
    """Tells the broker, from Train's controller, which ranks failed and whether they died or raised."""

    def __init__(self, lane: str, broker: Any) -> None:
        self._lane = lane
        self._broker = broker

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called once for every poll that found failed ranks, before the lane is restarted."""
        errors = {rank: rank_error(error) for rank, error in worker_exceptions.items()}
        ray.get(self._broker.group_failed.remote(self._lane, errors))


def serve_jobs(config: dict[str, Any]) -> None:
    """What every rank of a lane runs: join, then one job after another until the broker has no more."""
    broker = config["broker"]
    group = get_current_placement_group()
    assert group is not None, "a Train worker always runs in a placement group"
    allow_inspection()
    context = ray.get_runtime_context()
    seat = Seat(config["lane"], group.id.hex(), ray.train.get_context().get_world_rank())
    born = psutil.Process().create_time()
    if not ask(broker.join, seat, RankProcess(context.current_actor, os.getpid(), born, context.get_node_id())):
        return
    cache = RankCache(_session_folder() / "compile-cache" / f"{seat.lane}-rank-{seat.rank}", cache_folder())
    cache.open()
    if not form(broker, seat, config["equipment"], config["device"]):
        return
    gives = ray.train.get_context().get_local_rank() == 0  # its peers compile the same
    memory = RankMemory(config["recycling"], device_bytes, resident_bytes)
    index = 0
    while (job := ask(broker.next_job, seat, index)) is not None:
        index += 1
        if ask(broker.begin, seat, job.job_id, count_oom_kills()):
            _say(seat, cache.share(cache.fill))
            _run_job(broker, seat, job, config["run"], config["device"], config["equipment"].data)
            _forget_last_job()
            if gives:
                _say(seat, cache.share(cache.give))
            if (reason := memory.why_recycle()) is not None:
                ask(broker.recycle, seat, reason)
                raise RankFailed(f"recycled: {reason}")


def _say(seat: Seat, problem: str | None) -> None:
    """Into what Ray keeps of this rank's output."""
    if problem is not None:
        print(f"{seat.lane} rank {seat.rank}: {problem}", file=sys.stderr, flush=True)


def _session_folder() -> Path:
    """Where Ray keeps its own files on this machine while this cluster runs."""
    node = ray._private.worker._global_node
    assert node is not None, "a Train worker always belongs to a node"
    return Path(node.get_session_dir_path())


def _run_job(broker: Any, seat: Seat, job: Job, run: str | None, device: str, mirrored: DataSettings | None) -> None:
    log = rank_log(Path(job.folder), seat.rank)
    print(f"=== job {job.job_id}, rank {seat.rank} of {seat.lane}: what it prints is in {log}", flush=True)
    outcome, crash = None, None
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with output_into(log):
            outcome, crash = _outcome_or_crash(broker, seat, job, run, device, mirrored)
    except OSError as error:
        crash = RankError("raised", describe_error(error), error_identity(error))
    ask(broker.end, seat, job.job_id, outcome if seat.rank == 0 else None, crash)
    if crash is not None:
        # Peers may hang in a collective, and this process may hold half a model: all ranks start anew.
        raise RankFailed(crash.text)


def _outcome_or_crash(
    broker: Any, seat: Seat, job: Job, run: str | None, device: str, mirrored: DataSettings | None
) -> tuple[dict[str, Any] | None, RankError | None]:
    from golfray.core.gang import join_gang

    report = functools.partial(_report, broker, seat, job.job_id) if seat.rank == 0 else None
    enter = functools.partial(_enter, broker, seat, job.job_id) if seat.rank == 0 else None
    try:
        _known_state()
        settings = settings_from_dict(job.settings)
        run_job, here = load_run(run or run_of(settings)), on_mirror(settings, mirrored)
        before = compile_counts()
        outcome = run_job(here, join_gang(device), Path(job.folder), report, enter)
        compiled = {name: float(count - before.get(name, 0)) for name, count in compile_counts().items()}
        if mirrored is not None and seat.rank == 0:
            leave_driver_paths(Path(job.folder), settings)
        return {**outcome, "metrics": {**outcome["metrics"], **compiled}}, None
    except Exception as error:  # noqa: BLE001  every exception of a trial is an outcome, told to the study
        traceback.print_exc()
        if (bad_token := describe_bad_token(error)) is not None:
            return None, RankError("raised", bad_token, BAD_TOKEN)
        return None, RankError("raised", describe_error(error), error_identity(error))


def _report(broker: Any, seat: Seat, job_id: str, point: dict[str, float]) -> str | None:
    reason: str | None = ask(broker.report, seat, job_id, point)
    return reason


def _enter(broker: Any, seat: Seat, job_id: str, phase: str) -> None:
    ask(broker.enter, seat, job_id, phase)


def _known_state() -> None:
    """Seed every generator the same way, whatever ran before; the trial seeds its own on top."""
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def _forget_last_job() -> None:
    """Give back the last model's memory and its compiled graphs."""
    import torch

    if "torch._dynamo" in sys.modules:
        # Otherwise the graphs of a lane's trials add up to torch's recompile limit, which is an error.
        torch._dynamo.reset()
    gc.collect()
    # What was freed in small pieces glibc keeps, and a lane lives through hundreds of trials.
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
