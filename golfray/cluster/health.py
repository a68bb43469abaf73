"""What `golfray doctor` finds about the machines: each by itself, and whether together they make a cluster.

Without an address the one machine is looked at without Ray. With one, Ray asks every node of that cluster; the answers
come from tasks that take no CPU from the lanes of a study that runs there.
"""

from __future__ import annotations

import dataclasses
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

from golfray.cluster.environment import start_session, stop_session
from golfray.cluster.equipment import Equipment
from golfray.cluster.node_data import needed_files
from golfray.cluster.node_health import judge_alike, judge_kinds, judge_node
from golfray.cluster.node_report import NodeReport, examine_node
from golfray.cluster.nodes import NoAnswer, ask_all, ask_node, name_of
from golfray.cluster.preflight import EnvironmentProblem, plan_lanes
from golfray.cluster.resources import local_resources
from golfray.config.sizes import count_text
from golfray.core.settings import DataSettings
from golfray.findings import Finding, error, fine, warning
from golfray.sweep.disk_room import nearest_folder
from golfray.sweep.node_rules import NodeRules

THIS_MACHINE = "this machine"

_EXAMINE_SECONDS = 240.0
# On a node that has not read the data before, it is read for its sums.
_READ_SECONDS = 900.0
_FILE_SECONDS = 60.0
_CLOCK_SECONDS = 20.0
# Logs of two nodes can be laid side by side, and certificates and tokens hold, as long as clocks differ by less.
_CLOCK_TOLERANCE_S = 2.0
_CLOCK_READINGS = 3
_MOST_FILES = 3
_LOOK = "look at it, or take it out of the cluster"


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a study would need of the machines: its folder, its ranks a lane, their device, its data where it has some.

    ``rules``: what it asks of nodes. ``address``: the cluster it would run on; None: this machine alone.
    """

    study_folder: Path
    workers: int
    device: str
    data: DataSettings | None
    rules: NodeRules
    address: str | None


def check(subject: Subject) -> list[Finding]:
    """Look at this machine, or at every node of the cluster. Nothing is left behind but remembered sums of the data."""
    here = examine_node()
    if subject.address is None:
        return [*judge_node(THIS_MACHINE, here, of_cluster=False), *_lanes(local_resources(), subject)]
    with tempfile.TemporaryDirectory(prefix="golfray-doctor-") as folder:
        try:
            session = start_session(Path(folder), subject.address)
        except EnvironmentProblem as problem:
            remedy = "start it, or name its address and token as its owner gave them"
            return [
                *judge_node(THIS_MACHINE, here, of_cluster=False),
                error("cluster", subject.address, " ".join(str(problem).split()), remedy),
            ]
        try:
            return _check_cluster(subject, here)
        finally:
            stop_session(session)


@dataclasses.dataclass(frozen=True)
class _Examined:
    """A node that answered. ``where``: what findings call it. ``node``: its entry in Ray's table."""

    where: str
    node: dict[str, Any]
    report: NodeReport


def _check_cluster(subject: Subject, here: NodeReport) -> list[Finding]:
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    findings = [fine("cluster", subject.address or "", f"{count_text(len(nodes), 'node')} in the Ray cluster")]
    examined: list[_Examined] = []
    for node, answer in zip(nodes, ask_all(nodes, examine_node, limit_s=_EXAMINE_SECONDS), strict=True):
        if isinstance(answer, NoAnswer):
            findings.append(error("node", name_of(node), str(answer), _LOOK))
            continue
        found = _Examined(f"{name_of(node)} ({answer.host})", node, answer)
        examined.append(found)
        findings += judge_node(found.where, answer, of_cluster=True)
        findings += judge_alike(found.where, answer, here)
        findings += _gpus_of_ray(found)
        findings += _clock(found)
    findings += judge_kinds([(found.where, found.report) for found in examined])
    findings += _lanes(ray.cluster_resources(), subject)
    findings += _shared_storage(examined, nearest_folder(subject.study_folder))
    if subject.data is not None:
        findings += _data(examined, subject.data, subject.rules)
    return findings


def _lanes(resources: dict[str, float], subject: Subject) -> list[Finding]:
    try:
        plan = plan_lanes(resources, subject.workers, subject.device)
    except EnvironmentProblem as problem:
        return [error("lanes", "", str(problem), "" if "; " in str(problem) else "ask for fewer, or for device cpu")]
    return [fine("lanes", "", line) for line in plan.describe()]


def _gpus_of_ray(found: _Examined) -> list[Finding]:
    has, offers = len(found.report.gpus), int(found.node["Resources"].get("GPU", 0))
    if has == offers:
        return []
    what = f"Ray offers {count_text(offers, 'GPU')} of it, its driver sees {has}"
    remedy = "restart Ray there without CUDA_VISIBLE_DEVICES and without --num-gpus"
    return [warning("gpus-of-ray", found.where, what, remedy)]


def _clock(found: _Examined) -> list[Finding]:
    """How far the node's clock is from the driver's: its reading lies between our two, and the nearest two count."""
    import ray

    best: tuple[float, float] | None = None
    for _ in range(_CLOCK_READINGS):
        sent = time.time()
        try:
            there = ray.get(ask_node(found.node["NodeID"], read_clock), timeout=_CLOCK_SECONDS)
        except ray.exceptions.RayError as failure:
            return [error("clock", found.where, f"could not be read: {' '.join(str(failure).split())}", _LOOK)]
        received = time.time()
        half = (received - sent) / 2
        if best is None or half < best[1]:
            best = there - (sent + received) / 2, half
    assert best is not None
    return [judge_clock(found.where, *best)]


def read_clock() -> float:
    """On a node: unix seconds."""
    return time.time()


def judge_clock(where: str, ahead_s: float, uncertain_s: float) -> Finding:
    """A clock that is ``ahead_s`` seconds ahead of the driver's, give or take ``uncertain_s``."""
    told = f"its clock is {abs(ahead_s):.2f} s {'ahead of' if ahead_s > 0 else 'behind'} the driver's"
    if abs(ahead_s) - uncertain_s <= _CLOCK_TOLERANCE_S:
        return fine("clock", where, f"{told}, give or take {uncertain_s:.2f} s")
    return warning("clock", where, told, "let chrony or systemd-timesyncd set both")


def _shared_storage(examined: list[_Examined], folder: Path) -> list[Finding]:
    """Whether what a node writes into ``folder`` is there for the driver, and the other way round."""
    nonce = secrets.token_hex(16)
    question = folder / f".golfray-doctor-{nonce}"
    answers = [folder / f"{question.name}-{index}" for index in range(len(examined))]
    try:
        try:
            question.write_text(nonce, encoding="ascii")
        except OSError as failure:
            what = f"cannot be written to: {failure.strerror}"
            return [error("study-folder", folder, what, "free it, or choose another with --study-dir")]
        findings = []
        for found, answer in zip(examined, answers, strict=True):
            (said,) = ask_all([found.node], answer_in_folder, str(question), str(answer), limit_s=_FILE_SECONDS)
            findings.append(_judge_folder(found.where, folder, said, answer, nonce))
        return findings
    finally:
        for path in (question, *answers):
            path.unlink(missing_ok=True)


def answer_in_folder(question: str, answer: str) -> str:
    """On a node: write what ``question`` holds into ``answer``. Returns what went wrong, "" where nothing did."""
    try:
        Path(answer).write_text(Path(question).read_text(encoding="ascii"), encoding="ascii")
    except OSError as failure:
        return f"{failure.filename}: {failure.strerror}"
    return ""


def _judge_folder(where: str, folder: Path, said: Any, answer: Path, nonce: str) -> Finding:
    try:
        written = answer.read_text(encoding="ascii") if said == "" else None
    except OSError:
        written = None  # it was written, on another disk of the same name
    if written == nonce:
        return fine("study-folder", where, f"shares {folder} with the driver")
    remedy = "put the study's folder on storage that all nodes share (--study-dir)"
    return error(
        "study-folder", where, f"does not share {folder} with the driver{f' ({said})' if said else ''}", remedy
    )


def _data(examined: list[_Examined], data: DataSettings, rules: NodeRules) -> list[Finding]:
    try:
        files = needed_files(data, summed=True)
    except EnvironmentProblem as problem:
        return [error("data", data.folder, str(problem), "give the folder of the shards: --set data.folder=DIR")]
    equipment = Equipment(files, rules, driver_node="")
    answers = ask_all([found.node for found in examined], data_faults, equipment, limit_s=_READ_SECONDS)
    findings = []
    for found, answer in zip(examined, answers, strict=True):
        findings += _judge_data(found.where, equipment, answer)
    return findings


def data_faults(equipment: Equipment) -> list[str]:
    """On a node: what it lacks of the data, and of room for them."""
    return equipment.foreseen_faults()


def _judge_data(where: str, equipment: Equipment, answer: Any) -> list[Finding]:
    if isinstance(answer, NoAnswer):
        return [error("data", where, f"asked for the data, it {answer}", _LOOK)]
    if not answer and equipment.rules.mirror is not None:
        return [fine("data", where, f"has the data mirrored in {equipment.rules.mirror}, or room for it")]
    if not answer:
        told = count_text(len(equipment.files or ()), "file")
        return [fine("data", where, f"has the driver's {told} of data, by size and sha256")]
    more = len(answer) - _MOST_FILES
    lines = [*answer[:_MOST_FILES], *([f"and {count_text(more, 'more file')}"] if more > 0 else [])]
    return [error("data", where, line, "") for line in lines]
