"""What every node must have before the first trial: the data, and a place to write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from golfray.cluster.node_data import NeededFile, file_findings
from golfray.cluster.nodes import NoAnswer, ask_all, name_of
from golfray.cluster.preflight import EnvironmentProblem, LanePlan

# On a node that has not read the data before, it is read for its sums: gigabytes, from a disk that may be far away.
_ANSWER_SECONDS = 900.0
_MOST_FINDINGS = 5


def check_nodes(plan: LanePlan, files: list[NeededFile] | None, study_folder: Path, local: bool) -> None:
    """Look at every node that can hold a rank. Raises :class:`EnvironmentProblem` with what is wrong on which node.

    ``files``: what each must have at the driver's path; None: nothing. ``local``: the only node is this machine, which
    is looked at without Ray.
    """
    if local:
        findings = [f"this machine: {finding}" for finding in inspect_node(files or [], str(study_folder))]
    else:
        findings = _ask_all(plan, files or [], str(study_folder))
    if findings:
        more = len(findings) - _MOST_FINDINGS
        shown = [*findings[:_MOST_FINDINGS], *([f"and {more} more"] if more > 0 else [])]
        raise EnvironmentProblem("not every node is ready:\n  " + "\n  ".join(shown))


def inspect_node(files: list[NeededFile], study_folder: str) -> list[str]:
    """What is wrong on this node, a line each with what to do about it."""
    return [*file_findings(files), *_write_findings(Path(study_folder))]


def _write_findings(study_folder: Path) -> list[str]:
    try:
        study_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=study_folder, prefix=".preflight-") as probe:
            probe.write(b"can a rank write here?")
    except OSError as error:
        return [f"{study_folder} cannot be written to: {error.strerror}; free it, or choose another with --study-dir"]
    return []


def _ask_all(plan: LanePlan, files: list[NeededFile], study_folder: str) -> list[str]:
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"] and _can_hold(node, plan)]
    findings = []
    for node, answer in zip(
        nodes, ask_all(nodes, inspect_node, files, study_folder, limit_s=_ANSWER_SECONDS), strict=True
    ):
        if isinstance(answer, NoAnswer):
            findings.append(f"{name_of(node)} {answer}; look at it, or take it out")
        else:
            findings += [f"{name_of(node)}: {finding}" for finding in answer]
    return findings


def _can_hold(node: dict[str, Any], plan: LanePlan) -> bool:
    return all(node["Resources"].get(name, 0.0) >= amount for name, amount in plan.resources_per_worker.items())
