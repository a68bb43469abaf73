"""Starting a trial without Ray."""

import dataclasses
import pathlib

import pytest
import torch

from golfray.core.settings import RunSettings, RuntimeSettings
from golfray.ship.launch import LaunchError, run_under_torchrun


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_said_before_anything_is_written(tmp_path: pathlib.Path) -> None:
    settings = dataclasses.replace(RunSettings(), runtime=RuntimeSettings(device="cuda"))
    with pytest.raises(LaunchError, match=r"runtime\.device is cuda, but torch sees no GPU here"):
        run_under_torchrun(settings, 2, tmp_path / "run", print, print)
    assert list(tmp_path.iterdir()) == []
