"""Why a rank's process ended without telling anybody: what it wrote last, and what the kernel counted.

Ray only notices that a connection is gone. Native crashes leave the fault handler's words in the rank's log, the
kernel's out-of-memory killer a higher count, a lost machine an entry in Ray's table of nodes; SIGKILL leaves nothing.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from golfray.cluster.nodes import NoAnswer, Nodes, process_lives
from golfray.cluster.ranks import NODE_CUT_OFF, NODE_LOST, UNEXPLAINED, UNREACHABLE, RankError, RankProcess

_LIMIT_SECONDS = 10.0

_LOG_TAIL_BYTES = 65_536
_LONGEST_CAUSE = 200
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
# What C++ says of the exception that nobody caught, before it aborts.
_THROWN = re.compile(r"^ +what\(\): +(.+)$", re.MULTILINE)
# Of a compiled model; with one thread a rank it is an exception in Python.
_OUT_OF_BOUNDS = re.compile(r"index out of bounds: .*")
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


@dataclasses.dataclass(frozen=True)
class Remains:
    """What a node still knows: the fault handler's ``last_words``, and whether ``oom_kills`` rose meanwhile.

    ``thrown``: the exception in native code that brought them about.
    """

    last_words: str | None
    memory_ran_out: bool
    thrown: str | None = None


async def explain_death(
    nodes: Nodes, process: RankProcess, error: RankError, log: Path, oom_kills: dict[str, int]
) -> RankError:
    """The error with its cause, where there is a sign of one.

    ``log``: the rank's. ``oom_kills``: what :func:`count_oom_kills` returned on its node when it began its job.
    """
    if error.error not in (UNEXPLAINED, UNREACHABLE):
        return error
    try:
        if error.error == UNREACHABLE and await nodes.ask(
            process.node, process_lives, process.pid, process.born, limit_s=_LIMIT_SECONDS
        ):
            return NODE_CUT_OFF
        remains = await nodes.ask(process.node, inspect_remains, log, oom_kills, limit_s=_LIMIT_SECONDS)
    except NoAnswer as silence:
        if await nodes.has_left(process.node):
            return NODE_LOST
        if error.error == UNREACHABLE:
            return NODE_CUT_OFF
        return dataclasses.replace(error, text=f"{error.text} (its node was asked why: {silence})")
    if remains.memory_ran_out:
        text = "SIGKILL, and the kernel counted an out-of-memory kill: its machine or container has too little memory"
        return RankError("died", text, "rank died: host memory exhausted")
    if remains.last_words is not None:
        signal = next((name for words, name in _SIGNALS.items() if remains.last_words.startswith(words)), None)
        words = f"{remains.last_words}{_cause(remains.thrown)} (see {log.name})"
        return RankError("died", words, f"rank died: {signal or remains.last_words}")
    return RankError("died", "its process ended without a word, as after SIGKILL", "rank died: SIGKILL")


def _cause(thrown: str | None) -> str:
    if thrown is None:
        return ""
    if (found := _OUT_OF_BOUNDS.search(thrown)) is not None:
        return f" after {found[0]}, as by an id beyond the vocabulary, which `golfray data check` finds"
    return f" after {thrown[:_LONGEST_CAUSE]}"


def inspect_remains(log: Path, oom_kills: dict[str, int]) -> Remains:
    """Read the signs on the node where a rank died."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    fatal, thrown = _FATAL.findall(text), _THROWN.findall(text)
    now = count_oom_kills()
    ran_out = any(now[source] > count for source, count in oom_kills.items() if source in now)
    return Remains(fatal[-1] if fatal else None, ran_out, thrown[-1] if thrown else None)


def count_oom_kills() -> dict[str, int]:
    """How often the kernel's out-of-memory killer has struck: on this machine, and in this process's control group."""
    sources = {"machine": (Path("/proc/vmstat"), "oom_kill")}
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, group = line.split(":", 2)
        if not controllers:
            sources["group"] = (Path("/sys/fs/cgroup") / group.strip("/") / "memory.events", "oom_kill")
        elif "memory" in controllers.split(","):
            sources["group"] = (Path("/sys/fs/cgroup/memory") / group.strip("/") / "memory.oom_control", "oom_kill")
    counts = {}
    for source, (path, name) in sources.items():
        for line in _lines(path):
            key, _, value = line.partition(" ")
            if key == name:
                counts[source] = int(value)
    return counts


def _lines(path: Path) -> list[str]:
    """The lines of a file that this kernel may not have."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
