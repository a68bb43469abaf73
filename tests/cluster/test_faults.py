"""One real lane of two ranks, and every way in which a rank can fail: the outcome, its words, and the next job.

Each test leaves the lane as it found it: up, or about to be started again, with one placement group at most.
"""

import os
import pathlib
import re
import signal

import psutil
import pytest

from golfray.sweep.executor import Progress
from golfray.sweep.limits import PhaseLimits
from golfray.sweep.outcome import Kind

pytestmark = pytest.mark.slow

LIMITS = PhaseLimits(data=2.0, compile=2.0, progress=4.0, validate=2.0, export=2.0, score=2.0)
GRACE_SECONDS = 5.0


@pytest.fixture(scope="module")
def lanes(start_lanes):
    return start_lanes(limits=LIMITS, cancel_grace_s=GRACE_SECONDS)


@pytest.fixture(autouse=True)
def the_study_goes_on(lanes):
    """After every fault a plain job runs, on ranks that hold the only placement group of CPUs."""
    from ray.util import placement_group_table

    yield
    outcome = lanes.outcome(lanes.submit("steps", seed=5))
    assert (outcome.kind, outcome.metrics["sum"]) == (Kind.SCORED, 11.0)
    held = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    # Tune's own trial holds one too, of no CPU.
    assert sum("CPU" in group["bundles"][0] for group in held) == 1


def begun(lanes, task):
    """A job that has reported from training."""
    job_id = lanes.submit(task)
    lanes.events_until(Progress, job_id)
    return job_id


def test_a_raising_rank(lanes):
    job_id = lanes.submit("refuse:1", seed=3)
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    line = re.fullmatch(r"rank 1: ValueError: seed 3 is refused \(lane_standin\.py:(\d+)\)", outcome.reason)[1]
    assert outcome.error == f"ValueError at lane_standin.py:{line}"
    log = (lanes.attempt(job_id) / "rank-1.log").read_text()
    assert log.startswith("rank 1 enters data\n")
    assert "Traceback (most recent call last)" in log
    assert log.endswith("ValueError: seed 3 is refused\n")
    assert outcome.phases.keys() == {"data", "compile", "train"}


def test_memory_that_is_refused(lanes):
    outcome = lanes.outcome(lanes.submit("need_a_petabyte:0"))
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith("rank 0: host memory exhausted: ")
    assert re.fullmatch(r"host memory exhausted at lane_standin\.py:\d+", outcome.error)


def test_a_killed_rank(lanes):
    job_id = begun(lanes, "until_stopped")
    os.kill(lanes.pid(job_id, 1), signal.SIGKILL)
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason == "rank 1 died: its process ended without a word, as after SIGKILL"
    assert outcome.error == "rank died: SIGKILL"
    assert len(lanes.notes(job_id, 0)) == 1, "what has begun is never run again"


def test_a_rank_killed_between_jobs_costs_nobody_an_attempt(lanes):
    job_id = lanes.submit("steps")
    lanes.outcome(job_id)
    os.kill(lanes.pid(job_id, 0), signal.SIGKILL)


def test_a_killed_lane(lanes):
    job_id = begun(lanes, "until_stopped")
    for rank in (0, 1):
        os.kill(lanes.pid(job_id, rank), signal.SIGKILL)
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    assert re.fullmatch(r"ranks? [01](, 1)? died: its process ended without a word, as after SIGKILL", outcome.reason)
    assert outcome.error == "rank died: SIGKILL"


def test_a_crash_in_native_code(lanes):
    job_id = lanes.submit("crash_in_native_code:1")
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason == "rank 1 died: Segmentation fault (see rank-1.log)"
    assert outcome.error == "rank died: SIGSEGV"
    log = (lanes.attempt(job_id) / "rank-1.log").read_text()
    assert "Fatal Python error: Segmentation fault" in log
    assert "crash_in_native_code" in log


def test_the_kernel_ends_a_rank_that_takes_too_much_memory(lanes):
    """In a control group of its own with little room, so that nothing else is in danger."""
    job_id = begun(lanes, "until_stopped")
    pid = lanes.pid(job_id, 1)
    with limited_memory(pid, psutil.Process(pid).memory_info().rss + 2**27):
        lanes.executor.cancel(job_id, "its rank is in the group now")
        lanes.outcome(job_id)
        outcome = lanes.outcome(lanes.submit("eat_all_memory:1"))
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith("rank 1 died: SIGKILL, and the kernel counted an out-of-memory kill")
    assert outcome.error == "rank died: host memory exhausted"


def test_a_stopped_rank_is_found_by_its_silence(lanes):
    job_id = begun(lanes, "until_stopped")
    os.kill(lanes.pid(job_id, 1), signal.SIGSTOP)
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    words = outcome.reason.split("; ")
    assert words[0] == "hung in train: no report for 4 s (limit progress)"
    assert re.match(r"rank 1 was stopped at (lane_standin|gang)\.py:\d+, rank 0 was at gang\.py:\d+$", words[1])
    killed = "it did not stop within 5 s, its lane was killed"
    assert words[2] == f"stacks in attempts/{job_id}/stacks.txt ({killed})"
    assert outcome.error == "phase limit: train"
    stacks = (lanes.attempt(job_id) / "stacks.txt").read_text()
    assert "rank 1 (stopped by a signal)\n" in stacks
    assert stacks.count("    run (") == 2, "the frame of the stand-in, of both ranks"


@pytest.mark.parametrize("phase", ["data", "compile"])
def test_a_phase_that_takes_too_long_and_then_hears_the_request_to_stop(lanes, phase):
    job_id = lanes.submit(f"slow:{phase}")
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    words = outcome.reason.split("; ")
    assert words[0] == f"hung in {phase}: it was not over for 2 s (limit {phase})"
    assert re.match(r"ranks 0, 1 were at lane_standin\.py:\d+$", words[1])
    assert words[2] == f"stacks in attempts/{job_id}/stacks.txt"
    assert outcome.error == f"phase limit: {phase}"
    # By its own loop: the job answered, and the lane was left alone.
    assert outcome.metrics["train/steps"] == 1.0


@pytest.mark.parametrize("phase", ["validate", "export", "score"])
def test_a_phase_that_never_ends(lanes, phase):
    job_id = lanes.submit(f"hang:{phase}")
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith(f"hung in {phase}: it was not over for 2 s (limit {phase}); ranks 0, 1 were at ")
    assert "it did not stop within 5 s, its lane was killed" in outcome.reason
    assert outcome.error == f"phase limit: {phase}"
    assert outcome.phases[phase] > 2.0


def test_a_killed_controller_of_train(lanes):
    job_id = begun(lanes, "until_stopped")
    (controller,) = [process for process in psutil.process_iter() if is_controller(process)]
    controller.kill()
    outcome = lanes.outcome(job_id)
    assert outcome.kind is Kind.CRASHED
    assert outcome.reason.startswith("lane-0 failed while it ran this job: ended by ActorDiedError: ")
    assert outcome.error == "lane lost"


def is_controller(process):
    try:
        mine = psutil.Process().pid in (parent.pid for parent in process.parents())
        return mine and process.name().startswith("ray::TrainContro")
    except psutil.NoSuchProcess:
        return False


class limited_memory:
    """Moves a process into a control group that may hold so many bytes; where there are none, the test is skipped."""

    def __init__(self, pid, most_bytes):
        self.pid, self.most_bytes = pid, most_bytes
        roots = [pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")]
        self.group = next(root for root in roots if root.is_dir()) / f"golfray-test-{os.getpid()}"

    def __enter__(self):
        try:
            self.group.mkdir()
            limit = next(
                path for name in ("memory.limit_in_bytes", "memory.max") if (path := self.group / name).exists()
            )
            limit.write_text(str(self.most_bytes))
            (self.group / "cgroup.procs").write_text(str(self.pid))
        except (OSError, StopIteration) as error:
            self.__exit__()
            pytest.skip(f"no control group can be made here: {error}")

    def __exit__(self, *_):
        if self.group.is_dir():
            self.group.rmdir()
