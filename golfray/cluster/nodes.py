"""Small questions put to a node of the cluster: about its processes, its files, its memory.

The node where the question arises is asked directly, any other by a Ray task there, which takes no CPU from the lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import psutil  # type: ignore[import-untyped]

from golfray.sweep.executor import Holding

Answer = TypeVar("Answer")

# Ray gives a machine up after five questions in a row without an answer; each waits for it for 10 s, and the next one
# comes 3 s later. Where connections are refused that takes 15 s, and where nothing comes back, 65 s.
_VERDICT_SECONDS = 75


class NoAnswer(RuntimeError):
    """A node did not answer, or what it was asked failed there."""


class Nodes(Protocol):
    """Who asks the nodes, which are known by Ray's names."""

    async def ask(self, node: str, question: Callable[..., Answer], *arguments: Any, limit_s: float) -> Answer:
        """What ``question(*arguments)`` returns on the node; raises :class:`NoAnswer`, after ``limit_s`` at most."""

    async def has_left(self, node: str) -> bool:
        """Whether a node that does not answer turns out to be gone from the cluster."""


class RayNodes:
    """The nodes of the Ray cluster in which this process is."""

    async def ask(self, node: str, question: Callable[..., Answer], *arguments: Any, limit_s: float) -> Answer:
        """See :class:`Nodes`."""
        import ray

        try:
            if node == ray.get_runtime_context().get_node_id():
                return await asyncio.wait_for(asyncio.to_thread(question, *arguments), limit_s)
            answer: Answer = await asyncio.wait_for(ask_node(node, question, *arguments), limit_s)
            return answer
        except TimeoutError:
            raise NoAnswer(f"no answer within {limit_s:g} s") from None
        except (ray.exceptions.RayError, OSError, psutil.Error) as error:
            raise NoAnswer(f"{type(error).__name__}: {' '.join(str(error).split())}") from error

    async def has_left(self, node: str) -> bool:
        """See :class:`Nodes`."""
        import ray

        for _ in range(_VERDICT_SECONDS):
            table: list[dict[str, Any]] = await asyncio.to_thread(ray.nodes)
            if not any(entry["NodeID"] == node and entry["Alive"] for entry in table):
                return True
            await asyncio.sleep(1.0)
        return False


def ask_node(node: str, question: Callable[..., Any], *arguments: Any) -> Any:
    """A reference to the answer of a task that runs on ``node`` and nowhere else."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question).remote(*arguments)


def ask_all(nodes: list[dict[str, Any]], question: Callable[..., Any], *arguments: Any, limit_s: float) -> list[Any]:
    """What ``question(*arguments)`` returns on each of ``nodes`` (entries of Ray's table), asked side by side.

    In place of an answer that did not come within ``limit_s`` seconds, or failed, there is a :class:`NoAnswer`.
    """
    import ray

    asked = [ask_node(node["NodeID"], question, *arguments) for node in nodes]
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=limit_s) if asked else ([], [])
    answers: list[Any] = []
    for reference in asked:
        if reference not in ready:
            answers.append(NoAnswer(f"did not answer within {limit_s:g} s"))
            continue
        try:
            answers.append(ray.get(reference))
        except ray.exceptions.RayError as error:
            answers.append(NoAnswer(f"could not be asked: {' '.join(str(error).split())}"))
    return answers


def name_of(node: dict[str, Any]) -> str:
    """What messages call a node of Ray's table."""
    return f"node {node['NodeManagerAddress']}"


def process_lives(pid: int, born: float) -> bool:
    """Whether the process of this machine that has this id and was created at ``born`` has not ended."""
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_process(pid: int, born: float) -> None:
    """Kill the process of this machine that has this id and was created at ``born``, if it is still there."""
    try:
        process = psutil.Process(pid)
        if process.create_time() == born:
            process.kill()
    except psutil.NoSuchProcess:
        return  # it ended by itself


def holding() -> Holding:
    """All nodes of the cluster with all their GPUs, whether lanes use them or not."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return Holding(len(nodes), sum(int(node["Resources"].get("GPU", 0)) for node in nodes))
