"""What is judged wrong with a node by what it said, and what to do about it."""

import dataclasses

import pytest

from golfray.cluster.gpus import Gpu
from golfray.cluster.health import judge_clock
from golfray.cluster.listeners import Listener
from golfray.cluster.node_health import judge_alike, judge_kinds, judge_node
from golfray.cluster.node_report import examine_node

GB = 10**9
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def gpus(count, name=H100, used=4):
    return tuple(Gpu(index, name, "570.86.15", 81_559, used, 345, 1980, 31) for index in range(count))


@pytest.fixture(scope="module")
def here():
    """This machine as it says it is, without what happens to listen on it."""
    return dataclasses.replace(examine_node(), listeners=[], temporary_bytes=50 * GB, shared_memory_bytes=8 * GB)


@pytest.fixture(scope="module")
def with_gpus(here):
    """The same with eight GPUs that torch can use."""
    return dataclasses.replace(here, gpus=gpus(8), torch_gpus=8, cuda="12.8", nccl="2.27.3")


def faults(node, of_cluster=False):
    """Codes and severities of all that is not in order."""
    findings = judge_node("node 1", node, of_cluster=of_cluster)
    assert all(finding.where == "node 1" and bool(finding.remedy) == (finding.severity != "ok") for finding in findings)
    return {finding.code: finding.severity for finding in findings if finding.severity != "ok"}


def said(node, code, of_cluster=False):
    (finding,) = [found for found in judge_node("node 1", node, of_cluster=of_cluster) if found.code == code]
    return finding.line()


def test_a_node_on_which_nothing_is_wrong(here, with_gpus):
    assert faults(here) == faults(with_gpus) == {}
    assert said(with_gpus, "gpus") == f"node 1: 8 x {H100}, driver 570.86.15, torch for CUDA 12.8"
    assert said(with_gpus, "nccl") == "node 1: NCCL 2.27.3"
    assert said(here, "ports") == "node 1: none is open to other machines but 22"


@pytest.mark.parametrize(
    ("change", "fault", "severity"),
    [
        ({"compiler": None}, "compiler", "warning"),
        ({"shared_memory_bytes": 64 * 10**6}, "shared-memory", "warning"),
        ({"temporary_bytes": 100 * 10**6}, "temporary-room", "error"),
        ({"gpu_problem": "nvidia-smi ended with code 9"}, "gpu-driver", "error"),
        ({"listeners": [Listener(8888, "0.0.0.0", "jupyter-lab")]}, "ports", "warning"),
    ],
)
def test_each_thing_that_may_be_wrong(here, change, fault, severity):
    assert faults(dataclasses.replace(here, **change)) == {fault: severity}


@pytest.mark.parametrize(
    ("change", "fault", "severity"),
    [
        ({"cuda": None, "nccl": None, "torch_gpus": 0}, "gpu-torch", "error"),
        ({"torch_gpus": 0}, "gpu-torch", "error"),
        ({"torch_gpus": 7}, "gpu-torch", "warning"),
        ({"nccl": None}, "nccl", "error"),
        ({"gpus": gpus(8, used=20_000)}, "gpu-busy", "warning"),
        # What is enough for CPUs is not for GPUs.
        ({"shared_memory_bytes": GB // 2}, "shared-memory", "warning"),
        ({"compiler": None}, None, None),
    ],
)
def test_each_thing_that_may_be_wrong_with_gpus(with_gpus, change, fault, severity):
    assert faults(dataclasses.replace(with_gpus, **change)) == ({} if fault is None else {fault: severity})


def test_versions_that_golfray_does_not_take(here):
    versions = {**here.versions, "ray": "2.40.0", "optuna": None}
    node = dataclasses.replace(here, versions=versions)
    lines = [found.line() for found in judge_node("node 1", node, of_cluster=False) if found.code == "version"]
    assert lines == [
        'node 1: optuna is not installed; install it: pip install "optuna<6,>=5"',
        'node 1: ray is 2.40.0, golfray needs ==2.60.*; install it: pip install "ray[default,train,tune]==2.60.*"',
    ]


def test_ports_of_ray_are_for_its_nodes_and_ssh_is_for_everybody(here):
    ports = {22: "sshd", 6379: "gcs_server", 41001: "raylet", 41002: "ray::IDLE", 41003: "ray::IDLE"}
    node = dataclasses.replace(here, listeners=[Listener(port, "10.0.0.4", name) for port, name in ports.items()])
    assert faults(node, of_cluster=True) == {}
    assert "Ray has 4 ports open for its nodes" in said(node, "ports", of_cluster=True)
    assert faults(node, of_cluster=False) == {"ports": "warning"}
    others = [Listener(8265, "0.0.0.0", ""), Listener(9000, "0.0.0.0", "caddy"), Listener(9001, "::", "caddy")]
    findings = judge_node("node 1", dataclasses.replace(node, listeners=others), of_cluster=True)
    assert [found.what for found in findings if found.code == "ports"] == [
        "a process of another user takes connections from other machines on port 8265",
        "caddy takes connections from other machines on port 9000, 9001",
    ]


def test_nodes_that_differ(here):
    assert judge_alike("node 1", here, here) == []
    other = dataclasses.replace(here, versions={**here.versions, "torch": "2.9.0", "mlflow": "3.1"}, source="0" * 64)
    torch, code = judge_alike("node 1", other, here)
    assert (torch.code, torch.what) == ("versions-differ", f"torch 2.9.0, the driver has {here.versions['torch']}")
    assert (code.code, code.severity) == ("code-differs", "error")
    assert f"not {here.source[:8]}" in code.what


def test_gpus_of_two_kinds(here, with_gpus):
    slower = dataclasses.replace(with_gpus, gpus=gpus(8, A100))
    assert judge_kinds([("a", with_gpus), ("b", with_gpus), ("head", here)]) == []
    (found,) = judge_kinds([("a", with_gpus), ("b", slower), ("c", with_gpus)])
    assert found.what == f"{H100} on a, c; {A100} on b"


@pytest.mark.parametrize(
    ("ahead", "uncertain", "severity", "words"),
    [
        (0.01, 0.002, "ok", "its clock is 0.01 s ahead of the driver's, give or take 0.00 s"),
        (-1.5, 0.1, "ok", "its clock is 1.50 s behind the driver's, give or take 0.10 s"),
        (40.0, 0.1, "warning", "its clock is 40.00 s ahead of the driver's"),
        (-2.5, 0.1, "warning", "its clock is 2.50 s behind the driver's"),
        # A slow answer proves nothing.
        (9.0, 8.0, "ok", "its clock is 9.00 s ahead of the driver's, give or take 8.00 s"),
    ],
)
def test_clocks(ahead, uncertain, severity, words):
    found = judge_clock("node 1", ahead, uncertain)
    assert (found.severity, found.what) == (severity, words)
