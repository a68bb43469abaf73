"""What nvidia-smi says of GPUs, read as it is written. No GPU was here: the program is a stand-in with its format."""

import pytest

from golfray.cluster.gpus import Gpu, GpuProblem, list_gpus

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts a program of that name before all others, which prints ``said`` and ends with ``code``."""

    def install(said, code=0, error=""):
        program = tmp_path / "nvidia-smi"
        (tmp_path / "said").write_text(said)
        (tmp_path / "error").write_text(error)
        program.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/said\ncat {tmp_path}/error >&2\nexit {code}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path / "asked"

    return install


def test_every_gpu_with_what_is_known_of_it(nvidia_smi):
    asked = nvidia_smi(
        f"0, {H100}, 570.86.15, 81559, 4, 345, 1980, 31\n1, {H100}, 570.86.15, 81559, [N/A], 1980, 1980, 64\n"
    )
    assert list_gpus() == (
        Gpu(0, H100, "570.86.15", 81_559, 4, 345, 1980, 31),
        Gpu(1, H100, "570.86.15", 81_559, None, 1980, 1980, 64),
    )
    assert "memory.total,memory.used,clocks.current.sm,clocks.max.sm" in asked.read_text()


def test_a_machine_without_the_program_has_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list_gpus() == ()


def test_a_driver_that_does_not_answer(nvidia_smi):
    nvidia_smi("", 18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n")
    with pytest.raises(GpuProblem, match=r"ended with code 18: Failed to initialize NVML: Driver/library version"):
        list_gpus()


@pytest.mark.parametrize("line", ["0, NVIDIA H100", f"first, {H100}, 570.86.15, 81559, 4, 345, 1980, 31"])
def test_an_answer_that_is_not_what_was_asked(nvidia_smi, line):
    nvidia_smi(f"{line}\n")
    with pytest.raises(GpuProblem, match="nvidia-smi answered"):
        list_gpus()
