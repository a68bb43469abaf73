"""What is wrong with a node, judged by what it said of itself: nothing here asks it anything."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from packaging.requirements import Requirement

from golfray.cluster.gpus import Gpu
from golfray.cluster.listeners import Listener
from golfray.cluster.node_report import NodeReport
from golfray.config.sizes import count_text, size_text
from golfray.findings import Finding, error, fine, warning
from golfray.sweep.disk_room import TEMPORARY_BYTES, with_reserve

SSH_PORT = 22
# Where these differ, ranks of one lane do not understand each other, or trials of two lanes do not compare.
_ALIKE = ("python", "torch", "ray", "numpy", "sentencepiece", "brotli", "zstandard")
# What processes of Ray are called, and drivers that have joined it; its workers are "ray::" and what they do.
_RAYS = ("gcs_server", "raylet", "golfray")
# Ray's object store, and what the ranks of a node pass to each other through it.
_SHARED_MEMORY_BYTES, _SHARED_MEMORY_BYTES_GPUS = 256 * 1024**2, 1024**3
# An idle GPU holds some of its memory itself.
_USED_MIB = 1024
_DOCKER = "in a container start it with --shm-size=8g or --ipc=host"


def judge_node(where: str, node: NodeReport, *, of_cluster: bool) -> list[Finding]:
    """Everything about one node that can be said without the others. ``of_cluster``: whether Ray runs on it for us."""
    return [
        *_versions(where, node),
        *_gpus(where, node),
        *_collectives(where, node),
        *_memory(where, node),
        *_temporary(where, node),
        *_ports(where, node.listeners, of_cluster=of_cluster),
    ]


def judge_alike(where: str, node: NodeReport, driver: NodeReport) -> list[Finding]:
    """What differs between a node and the machine from which the study is driven."""
    findings = [
        error(
            "versions-differ",
            where,
            f"{name} {node.versions[name] or 'is not installed'}, the driver has {driver.versions[name] or 'none'}",
            "install the same on every node",
        )
        for name in _ALIKE
        if node.versions[name] != driver.versions[name]
    ]
    if node.source != driver.source:
        what = f"golfray's code is another than the driver's ({node.source[:8]}, not {driver.source[:8]})"
        findings.append(error("code-differs", where, what, "bring the same commit to every node"))
    return findings


def judge_kinds(nodes: list[tuple[str, NodeReport]]) -> list[Finding]:
    """Nodes whose GPUs are not those of the others: their trials are of another fidelity."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for where, node in nodes:
        if node.gpus:
            kinds.setdefault(tuple(sorted({gpu.name for gpu in node.gpus})), []).append(where)
    if len(kinds) < 2:
        return []
    told = "; ".join(f"{', '.join(names)} on {', '.join(places)}" for names, places in kinds.items())
    remedy = "trials of different GPUs are never ranked together: take nodes of one kind"
    return [warning("gpus-differ", "nodes", told, remedy)]


def _versions(where: str, node: NodeReport) -> Iterator[Finding]:
    told = ", ".join(f"{name} {version}" for name, version in node.versions.items() if version is not None)
    yield fine("versions", where, f"{node.system}; {told}")
    for requirement in map(Requirement, importlib.metadata.requires("golfray") or []):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = node.versions.get(requirement.name, "")
        if found is None:
            what = f"{requirement.name} is not installed"
        elif found and not requirement.specifier.contains(found, prereleases=True):
            what = f"{requirement.name} is {found}, golfray needs {requirement.specifier}"
        else:
            continue
        yield error("version", where, what, f'install it: pip install "{requirement}"')


def _gpus(where: str, node: NodeReport) -> Iterator[Finding]:
    if node.gpu_problem is not None:
        remedy = "mend the NVIDIA driver, as by restarting the machine after its update"
        yield error("gpu-driver", where, node.gpu_problem, remedy)
    if not node.gpus:
        compiled = f"compiled by {node.compiler}" if node.compiler else "not compiled"
        yield fine("gpus", where, f"no GPU; {count_text(node.cpus, 'CPU')}, training {compiled}")
        if node.compiler is None:
            what = "no C++ compiler, so training on the CPU is not compiled and takes about a third longer"
            yield warning("compiler", where, what, "install g++")
        return
    yield fine("gpus", where, f"{_gpu_words(node.gpus)}, driver {node.gpus[0].driver}, torch for CUDA {node.cuda}")
    count = len(node.gpus)
    if node.cuda is None:
        what = f"{count_text(count, 'GPU')}, but torch {node.versions['torch']} is built for CPUs only"
        yield error("gpu-torch", where, what, "install a torch that is built for CUDA")
    elif node.torch_gpus == 0:
        what = f"torch, built for CUDA {node.cuda}, can use none of {count_text(count, 'GPU')}"
        remedy = f"update the driver ({node.gpus[0].driver}), or install a torch for an earlier CUDA"
        yield error("gpu-torch", where, what, remedy)
    elif node.torch_gpus < count:
        what = f"torch sees {node.torch_gpus} of {count_text(count, 'GPU')}"
        yield warning("gpu-torch", where, what, "look at CUDA_VISIBLE_DEVICES, and at MIG, which nvidia-smi -L shows")
    for gpu in node.gpus:
        if gpu.used_mib is not None and gpu.used_mib > _USED_MIB:
            what = f"GPU {gpu.index} is in use: {gpu.used_mib:,} MiB of it are taken"
            yield warning("gpu-busy", where, what, "end what uses it (nvidia-smi names it), or its trials are slower")


def _gpu_words(gpus: tuple[Gpu, ...]) -> str:
    names = [gpu.name for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _collectives(where: str, node: NodeReport) -> Iterator[Finding]:
    if not node.gpus:
        yield fine("nccl", where, "without a GPU ranks talk by gloo, not NCCL")
    elif node.nccl is not None:
        yield fine("nccl", where, f"NCCL {node.nccl}")
    elif node.cuda is not None:
        what = "torch was built without NCCL, by which the ranks of several GPUs talk"
        yield error("nccl", where, what, "install a torch that has it")


def _memory(where: str, node: NodeReport) -> Iterator[Finding]:
    need = _SHARED_MEMORY_BYTES_GPUS if node.gpus else _SHARED_MEMORY_BYTES
    if node.shared_memory_bytes is not None and node.shared_memory_bytes < need:
        what = f"{size_text(node.shared_memory_bytes)} free in /dev/shm, where ranks need {size_text(need)}"
        yield warning("shared-memory", where, what, _DOCKER)


def _temporary(where: str, node: NodeReport) -> Iterator[Finding]:
    need, told = with_reserve(TEMPORARY_BYTES), f"{size_text(node.temporary_bytes)} free in {node.temporary_folder}"
    if node.temporary_bytes < need:
        what = f"{told}, where Ray and torch need {size_text(need)}"
        yield error("temporary-room", where, what, "make room, or choose another folder with TMPDIR")
    else:
        yield fine("temporary-room", where, told)


def _ports(where: str, listeners: list[Listener], *, of_cluster: bool) -> Iterator[Finding]:
    rays = {listener.port for listener in listeners if _is_rays(listener)}
    others: dict[str, list[str]] = {}
    for listener in listeners:
        if listener.port not in rays and listener.port != SSH_PORT:
            others.setdefault(listener.process, []).append(str(listener.port))
    if rays and of_cluster:
        what = f"Ray has {count_text(len(rays), 'port')} open for its nodes; the firewall must let nobody else in"
        yield fine("ports", where, what)
    elif rays:
        what = f"a Ray cluster that is not this golfray's has {count_text(len(rays), 'port')} open to other machines"
        yield warning("ports", where, what, "end it, or let the firewall keep others out")
    for process, ports in others.items():
        told = f"{process or 'a process of another user'} takes connections from other machines on port "
        remedy = "let it listen on 127.0.0.1 and reach it by `ssh -L`, or close the port in the firewall"
        yield warning("ports", where, told + ", ".join(ports), remedy)
    if not rays and not others:
        yield fine("ports", where, f"none is open to other machines but {SSH_PORT}")


def _is_rays(listener: Listener) -> bool:
    return listener.process in _RAYS or listener.process.startswith("ray")
