"""Signs of a death: a fault handler's last words, and the kernel's counts."""

import asyncio
import os
import pathlib
import subprocess
import sys

import psutil
import pytest

from golfray.cluster.deaths import Remains, count_oom_kills, explain_death, inspect_remains
from golfray.cluster.nodes import NoAnswer
from golfray.cluster.ranks import NODE_CUT_OFF, NODE_LOST, UNEXPLAINED, UNREACHABLE, RankError, RankProcess

ROOT = pathlib.Path(__file__).parents[2]


def test_the_last_fatal_error_of_the_log(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text(
        "x" * 100_000 + "\nFatal Python error: Aborted\n\nThread\nFatal Python error: Segmentation fault\n\n"
    )
    assert inspect_remains(log, {}) == Remains("Segmentation fault", False)


@pytest.mark.parametrize("text", ["", "step 1\nwhat is a Fatal Python error: no idea\n", None])
def test_a_log_without_one(tmp_path, text):
    log = tmp_path / "rank-0.log"
    if text is not None:
        log.write_text(text)
    assert inspect_remains(log, {}) == Remains(None, False)


@pytest.mark.parametrize(
    ("thrown", "cause"),
    [
        (
            "kernel, /tmp/x/main.cpp:24, index out of bounds: 0 <= tmp2 < 64L",
            " after index out of bounds: 0 <= tmp2 < 64L, as by an id beyond the vocabulary, which "
            "`golfray data check` finds",
        ),
        ("bad luck", " after bad luck"),
    ],
)
def test_an_exception_in_native_code_that_nobody_caught(tmp_path, thrown, cause):
    """What a compiled model with several threads says of an id beyond the vocabulary; copied from such a run."""
    log = tmp_path / "rank-1.log"
    log.write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        f"  what():  {thrown}\nFatal Python error: Aborted\n\nThread 0x00007f\n"
    )
    assert inspect_remains(log, {}) == Remains("Aborted", False, thrown)

    class Here:
        async def ask(self, node, question, *arguments, limit_s):
            return question(*arguments)

    process = RankProcess(None, 1, 0.0, "node")
    error = asyncio.run(explain_death(Here(), process, RankError("died", "gone", UNEXPLAINED), log, {}))
    assert error == RankError("died", f"Aborted{cause} (see rank-1.log)", "rank died: SIGABRT")


def test_a_rank_that_could_not_be_reached_is_dead_or_was_cut_off(tmp_path):
    """Ray says the same of both where a connection broke."""

    class Node:
        def __init__(self, answers, left):
            self.answers, self.left = answers, left

        async def ask(self, node, question, *arguments, limit_s):
            if not self.answers:
                raise NoAnswer("no answer")
            return question(*arguments)

        async def has_left(self, node):
            return self.left

    def explain(node, pid, born):
        unreachable = RankError("died", "unavailable", UNREACHABLE)
        return asyncio.run(explain_death(node, RankProcess(None, pid, born, "n"), unreachable, tmp_path / "none", {}))

    there = os.getpid(), psutil.Process().create_time()
    assert explain(Node(True, False), *there) == NODE_CUT_OFF
    ended = RankError("died", "its process ended without a word, as after SIGKILL", "rank died: SIGKILL")
    assert explain(Node(True, False), there[0], there[1] - 1.0) == ended, "another process has got its id"
    assert explain(Node(False, True), *there) == NODE_LOST
    assert explain(Node(False, False), *there) == NODE_CUT_OFF


def test_a_count_that_rose(tmp_path):
    now = count_oom_kills()
    assert now.keys() <= {"machine", "group"}
    assert now, "this kernel counts out-of-memory kills nowhere"
    assert not inspect_remains(tmp_path / "none", now).memory_ran_out
    assert inspect_remains(tmp_path / "none", {**now, "machine": -1}).memory_ran_out
    assert not inspect_remains(tmp_path / "none", {"elsewhere": -1}).memory_ran_out


def test_what_ray_says_of_a_rank_that_failed():
    """In a process of its own: whoever imports Ray here keeps sessions from starting."""
    code = """
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError
from golfray.cluster.ranks import rank_error

for error in (
    OutOfMemoryError("Task was killed because the node was running low on memory."),
    RayActorError(None, "Worker exit detail: it fell. Some common causes include"),
    RayActorError(None, "gone", preempted=True),
    ValueError("two\\nlines"),
    ActorUnavailableError("RPC error: Connection reset by peer", None),
):
    print(rank_error(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    memory, died, preempted, raised, unreachable = (eval(line) for line in done.stdout.splitlines())
    assert memory.kind == "died"
    assert memory.text.startswith(
        "Ray's memory monitor ended it, because its node was running out of memory: Task was "
    )
    assert memory.error == "rank died: host memory exhausted"
    assert died == RankError("died", "it fell.", "rank died")
    assert preempted == RankError("preempted", "gone", "node preempted")
    assert raised == RankError("raised", "two lines", None)
    assert (unreachable.kind, unreachable.error) == ("died", "rank unreachable")
    assert "Connection reset by peer" in unreachable.text
