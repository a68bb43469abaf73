"""Python stacks of ranks that hang, taken from outside by py-spy, and where in our code each of them is.

A rank that hangs cannot be asked: it may wait in native code, or be stopped by a signal. Everything here is bounded.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from golfray.cluster.errors import is_own
from golfray.cluster.nodes import NoAnswer, Nodes
from golfray.cluster.ranks import RankProcess

STACKS_NAME = "stacks.txt"

DUMP_SECONDS = 15.0
_ANSWER_SECONDS = 30.0

# prctl's PR_SET_PTRACER with PR_SET_PTRACER_ANY.
_SET_TRACER, _ANY_TRACER = 0x59616D61, ctypes.c_ulong(-1)

# The thread of a rank that runs jobs has a frame of this function.
_JOB_FRAME = "_run_job"


@dataclasses.dataclass(frozen=True)
class Stack:
    """One rank's process as it was found.

    ``text``: all its threads, innermost frame first, or why there are none. ``place``: the innermost own place of the
    thread that runs the job, such as ``loop.py:88``; None where it is unknown. ``stopped``: by a signal (SIGSTOP).
    """

    text: str
    place: str | None
    stopped: bool


def take_stacks(pids: Mapping[int, int], limit_s: float = DUMP_SECONDS) -> dict[int, Stack]:
    """Stacks of processes of this machine, {rank: process id}, all together within about ``limit_s`` seconds."""
    program = shutil.which("py-spy", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]))
    if program is None:
        return {rank: Stack("no stack: py-spy is not installed on this node", None, False) for rank in pids}
    stopped = {rank: _is_stopped(pid) for rank, pid in pids.items()}
    deadline = time.monotonic() + limit_s
    running = {
        rank: subprocess.Popen(
            # A stopped process cannot be paused, and need not be.
            [program, "dump", "--json", *(["--nonblocking"] if stopped[rank] else []), "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, pid in pids.items()
    }
    return {rank: _stack(process, deadline, stopped[rank]) for rank, process in running.items()}


async def stacks_of_ranks(nodes: Nodes, ranks: Mapping[int, RankProcess]) -> dict[int, Stack]:
    """Stacks of a lane's ranks, each taken on its own node; a node that does not answer is said to do so."""
    pids: dict[str, dict[int, int]] = {}
    for rank, process in ranks.items():
        pids.setdefault(process.node, {})[rank] = process.pid

    async def ask(node: str) -> dict[int, Stack]:
        try:
            return await nodes.ask(node, take_stacks, pids[node], limit_s=_ANSWER_SECONDS)
        except NoAnswer as silence:
            return {rank: Stack(f"no stack: its node was asked: {silence}", None, False) for rank in pids[node]}

    answers = await asyncio.gather(*(ask(node) for node in pids))
    return {rank: stack for answer in answers for rank, stack in answer.items()}


def describe_stacks(stacks: Mapping[int, Stack]) -> str:
    """Where the ranks are, in few words: ``rank 1 was stopped at loop.py:88``, ``ranks 0, 2 were at gang.py:23``."""
    groups: dict[tuple[bool, str | None], list[int]] = {}
    for rank, stack in sorted(stacks.items(), key=lambda item: (not item[1].stopped, item[0])):
        groups.setdefault((stack.stopped, stack.place), []).append(rank)
    words = []
    for (stopped, place), ranks in groups.items():
        who = f"rank {ranks[0]} was" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} were"
        if stopped or place is not None:
            words.append(" ".join([who, *(["stopped"] if stopped else []), *([f"at {place}"] if place else [])]))
    return ", ".join(words)


def keep_stacks(stacks: Mapping[int, Stack], folder: Path, study_folder: Path) -> str:
    """Write them into an attempt's folder; returns words that say where, relative to the study, or why they are not."""
    path = folder / STACKS_NAME
    text = "\n".join(
        f"rank {rank}{' (stopped by a signal)' if stack.stopped else ''}\n{stack.text}\n"
        for rank, stack in sorted(stacks.items())
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"stacks could not be written to {path}: {error.strerror}"
    return f"stacks in {path.relative_to(study_folder) if path.is_relative_to(study_folder) else path}"


def allow_inspection() -> None:
    """Let other processes of this user look at this one, where the kernel (Yama) would only let its ancestors."""
    if sys.platform == "linux":
        # Kernels without Yama do not know the call, and do not need it.
        ctypes.CDLL(None).prctl(_SET_TRACER, _ANY_TRACER, 0, 0, 0)


def _is_stopped(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False  # it is gone, or hidden from us: py-spy will say which


def _stack(process: subprocess.Popen[str], deadline: float, stopped: bool) -> Stack:
    try:
        out, err = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Stack("no stack: py-spy did not end in time", None, stopped)
    if process.returncode != 0:
        return Stack(f"no stack: {' '.join(err.partition('Stack backtrace')[0].split())}", None, stopped)
    try:
        threads = json.loads(out)
        return Stack("\n".join(map(_thread_text, threads)), _job_place(threads), stopped)
    except (ValueError, LookupError, TypeError) as error:  # another version's form must not end the study
        return Stack(f"no stack: py-spy's answer cannot be read: {error!r}", None, stopped)


def _thread_text(thread: dict[str, Any]) -> str:
    frames = "".join(f"\n    {frame['name']} ({frame['filename']}:{frame['line']})" for frame in thread["frames"])
    return f"thread {thread['thread_name'] or thread['thread_id']}{frames}"


def _job_place(threads: list[dict[str, Any]]) -> str | None:
    for thread in threads:
        frames = thread["frames"]
        if any(frame["name"] == _JOB_FRAME and is_own(frame["filename"]) for frame in frames):
            own = next(frame for frame in frames if is_own(frame["filename"]))
            return f"{Path(own['filename']).name}:{own['line']}"
    return None
