"""What every node must have before the first trial: the data, and a place to write.

A trial that finds a shard missing ends in a crash minutes later, once for every trial; asked here, it costs nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from golfray.cluster.nodes import ask_node
from golfray.cluster.preflight import EnvironmentProblem, LanePlan
from golfray.core.settings import DataSettings

_ANSWER_SECONDS = 120.0
_MOST_FINDINGS = 5


@dataclasses.dataclass(frozen=True)
class NeededFile:
    """A file as the driver sees it; ``sha256`` None: too large to be read on every node, its size must do."""

    path: str
    size: int
    sha256: str | None


def needed_files(data: DataSettings) -> list[NeededFile]:
    """The shards and the tokenizer. Raises :class:`EnvironmentProblem` where this machine itself lacks them."""
    from golfray.core.shards import list_shards

    folder = Path(data.folder).absolute()
    try:
        shards = [path for split in ("train", "val") for path in list_shards(folder, split)]
        found = [NeededFile(str(path), path.stat().st_size, None) for path in shards]
        tokenizer = Path(data.tokenizer).absolute()
        return [*found, NeededFile(str(tokenizer), tokenizer.stat().st_size, _sha256(tokenizer))]
    except OSError as error:
        raise EnvironmentProblem(f"the data cannot be read here: {error}") from error


def check_nodes(plan: LanePlan, data: DataSettings | None, study_folder: Path, local: bool) -> None:
    """Look at every node that can hold a rank. Raises :class:`EnvironmentProblem` with what is wrong on which node.

    ``local``: the only node is this machine, which is looked at without Ray.
    """
    files = needed_files(data) if data is not None else []
    if local:
        findings = [f"this machine: {finding}" for finding in inspect_node(files, str(study_folder))]
    else:
        findings = _ask_all(plan, files, str(study_folder))
    if findings:
        more = len(findings) - _MOST_FINDINGS
        shown = [*findings[:_MOST_FINDINGS], *([f"and {more} more"] if more > 0 else [])]
        raise EnvironmentProblem("not every node is ready:\n  " + "\n  ".join(shown))


def inspect_node(files: list[NeededFile], study_folder: str) -> list[str]:
    """What is wrong on this node, a line each with what to do about it."""
    return [*filter(None, map(_file_finding, files)), *_write_findings(Path(study_folder))]


def _file_finding(file: NeededFile) -> str | None:
    remedy = "put the driver's data at the same path on every node"
    path = Path(file.path)
    try:
        size = path.stat().st_size
        if size != file.size:
            return f"{path} has {size:,} bytes, the driver's has {file.size:,}; {remedy}"
        if file.sha256 is not None and _sha256(path) != file.sha256:
            return f"{path} is not the driver's file of that name (sha256); {remedy}"
        if not os.access(path, os.R_OK):
            return f"{path} may not be read by this user; {remedy}"
    except OSError as error:
        return f"{path}: {error.strerror}; {remedy}"
    return None


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

    nodes: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"] and _can_hold(node, plan)]
    asked = [(node, ask_node(node["NodeID"], inspect_node, files, study_folder)) for node in nodes]
    ready, _ = ray.wait([answer for _, answer in asked], num_returns=len(asked), timeout=_ANSWER_SECONDS)
    findings = []
    for node, answer in asked:
        name = f"node {node['NodeManagerAddress']}"
        if answer not in ready:
            findings.append(f"{name} did not answer within {_ANSWER_SECONDS:g} s; look at it, or take it out")
            continue
        try:
            findings += [f"{name}: {finding}" for finding in ray.get(answer)]
        except ray.exceptions.RayError as error:
            findings.append(f"{name} could not be asked: {' '.join(str(error).split())}")
    return findings


def _can_hold(node: dict[str, Any], plan: LanePlan) -> bool:
    return all(node["Resources"].get(name, 0.0) >= amount for name, amount in plan.resources_per_worker.items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
