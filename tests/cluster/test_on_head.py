"""What the head makes of the command that `ray submit` brings."""

import os
import shutil
import subprocess
import sys

import pytest

from golfray.cluster import on_head


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("tune a.yaml", "tune --address=auto a.yaml"),
        ("confirm 3 --seeds 2", "confirm --address=auto 3 --seeds 2"),
        ("tune a.yaml --address head:6379", "tune a.yaml --address head:6379"),
        ("tune a.yaml --address=head:6379", "tune a.yaml --address=head:6379"),
        ("tune a.yaml --executor=sim", "tune a.yaml --executor=sim"),
        ("tune a.yaml --dry-run", "tune a.yaml --dry-run"),
        ("tune -- --address", "tune --address=auto -- --address"),
        ("status muon", "status muon"),
        ("data fetch", "data fetch"),
        ("", ""),
    ],
)
def test_what_runs_trials_runs_them_on_this_cluster(typed, run):
    assert on_head.command(typed.split()) == run.split()


def test_alone_in_the_home_folder_it_becomes_the_installed_golfray(tmp_path):
    (tmp_path / "golfray").mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "golfray"
    program.write_text('#!/bin/sh\necho "$PWD $*"\nexit 7\n')
    program.chmod(0o755)
    script = shutil.copy(on_head.__file__, tmp_path)
    environment = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.defpath}"}
    command = [sys.executable, "-I", "-S", script, "tune", "a b.yaml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, f"{tmp_path / 'golfray'} tune --address=auto a b.yaml\n")
    program.unlink()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("on_head.py: golfray: No such file or directory; `ray up` with a file of clusters/")
