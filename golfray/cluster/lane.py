"""A lane: one TorchTrainer whose ranks stay up and run the broker's jobs one after another.

Starting ranks takes many seconds, a job handed to ranks that are up a few milliseconds. The price is that a process
lives through many trials: between two jobs a rank frees what the last one held and goes back to one known state, so
that a job's result does not depend on its predecessors. A rank that raises or dies takes its lane down; Train starts
all ranks anew.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.exceptions import RayActorError
from ray.train.torch import TorchTrainer
from ray.util.placement_group import get_current_placement_group

from golfray.cluster.preflight import LanePlan
from golfray.cluster.ranks import LONGEST_TEXT, RankProcess, Seat, rank_error
from golfray.sweep.executor import Job

# What a rank runs for a job: (settings, gang, folder, report) -> Outcome as a dictionary.
Run = Callable[..., dict[str, Any]]

# Start-up problems (no room, a rank that does not come up) are tried again this often before the lane is given up.
_START_RETRIES = 2


class RankFailed(RuntimeError):
    """Ends a rank after its job raised, which makes Train start the lane anew; carries words, nothing to unpickle."""


class Lane:
    """Runs the trainer of one lane in a thread of the driver until the broker sends its ranks home."""

    def __init__(self, name: str, plan: LanePlan, broker: Any, scratch: Path, run: str, local: bool) -> None:
        self.name = name
        self._broker = broker
        # Ranks of a cluster of our own are on this machine: what they say to each other stays on loopback.
        network = {"GLOO_SOCKET_IFNAME": "lo"} if local else {}
        self._trainer = TorchTrainer(
            serve_jobs,
            train_loop_config={"lane": name, "broker": broker, "run": run, "device": plan.device},
            scaling_config=ray.train.ScalingConfig(
                num_workers=plan.workers,
                use_gpu=plan.device == "cuda",
                resources_per_worker=dict(plan.resources_per_worker),
            ),
            run_config=ray.train.RunConfig(
                name=name,
                storage_path=str(scratch),
                failure_config=ray.train.FailureConfig(max_failures=-1, controller_failure_limit=_START_RETRIES),
                callbacks=[FailureNotice(name, broker)],
                worker_runtime_env={"env_vars": {"OMP_NUM_THREADS": str(plan.threads_per_worker), **network}},
            ),
        )
        self._thread = threading.Thread(target=self._fit, name=name, daemon=True)

    def start(self) -> None:
        """Begin bringing the ranks up; returns at once."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until the ranks are gone; False where ``timeout`` seconds were not enough."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _fit(self) -> None:
        reason = "its ranks went home"
        try:
            self._trainer.fit()
        except Exception as error:  # noqa: BLE001  whatever ends a lane is the reason its jobs are told
            reason = f"ended by {describe_error(error)}"
        try:
            ray.get(self._broker.lane_ended.remote(self.name, reason))
        except RayActorError:
            return  # the broker ended first: nobody is left to be told


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
    context = ray.get_runtime_context()
    seat = Seat(config["lane"], group.id.hex(), ray.train.get_context().get_world_rank())
    process = RankProcess(context.current_actor, os.getpid(), context.get_node_id())
    if not ray.get(broker.join.remote(seat, process)):
        return
    index = 0
    while (job := ray.get(broker.next_job.remote(seat, index))) is not None:
        index += 1
        if ray.get(broker.begin.remote(seat, job.job_id)):
            _run_job(broker, seat, job, config["run"], config["device"])
            _forget_last_job()


def _run_job(broker: Any, seat: Seat, job: Job, run: str, device: str) -> None:
    from golfray.core.gang import join_gang
    from golfray.core.settings import settings_from_dict

    print(f"=== job {job.job_id}, rank {seat.rank} of {seat.lane}, folder {job.folder}", flush=True)
    outcome, crash = None, None
    try:
        _known_state()
        report = functools.partial(_report, broker, seat, job.job_id) if seat.rank == 0 else None
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = load_run(run)(settings_from_dict(job.settings), join_gang(device), folder, report)
    except Exception as error:  # noqa: BLE001  every exception of a trial is an outcome, told to the study
        traceback.print_exc()
        crash = describe_error(error)
    ray.get(broker.end.remote(seat, job.job_id, outcome if seat.rank == 0 else None, crash))
    if crash is not None:
        # Peers may hang in a collective, and this process may hold half a model: all ranks start anew.
        raise RankFailed(crash)


def _report(broker: Any, seat: Seat, job_id: str, point: dict[str, float]) -> str | None:
    reason: str | None = ray.get(broker.report.remote(seat, job_id, point))
    return reason


def load_run(name: str) -> Run:
    """The function behind "package.module:function". Raises ``ImportError`` or ``AttributeError`` naming the part."""
    module, _, function = name.partition(":")
    loaded: Run = getattr(importlib.import_module(module), function)
    return loaded


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
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def describe_error(error: BaseException) -> str:
    """One line: type, first line of the message, and the innermost place outside installed packages."""
    message = (str(error).strip().splitlines() or [""])[0][:LONGEST_TEXT]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and "<" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {message}{place}"
