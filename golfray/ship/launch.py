"""One trial on this machine without Ray: the core's own entry point, under torchrun where it has several ranks."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golfray.config.errors import ConfigError
from golfray.core.settings import RunSettings, settings_to_json
from golfray.ship.modules import recipe_of

LOG_NAME = "train.log"
_KEPT_LINES = 30
_END_SECONDS = 15.0
_SEARCHED = "golfray.sweep.searched_trial"


class LaunchError(Exception):
    """A trial that could not be started or did not end; the message has the last lines that it printed."""

    exit_code = 4


def run_under_torchrun(
    settings: RunSettings,
    workers: int,
    folder: Path,
    on_point: Callable[[dict[str, float]], None],
    on_line: Callable[[str], None],
) -> dict[str, Any]:
    """Run a trial in ``folder``, which must not exist yet, and return what it wrote as result.json.

    Points of the curve go to ``on_point``, every other line that the ranks print to ``on_line``, and all of it into
    train.log. A rank computes with
    as many threads as in a lane of the study, so that the same settings give the same result in both. Raises
    ``ConfigError`` where the folder exists and :class:`LaunchError` where a rank fails. An interrupt ends the ranks
    before it goes on.
    """
    if folder.exists():
        raise ConfigError("exists already and is never written over; choose another with --folder", file=str(folder))
    threads = threads_per_rank(settings)
    folder.mkdir(parents=True)
    settings_file = folder / "settings.json"
    settings_file.write_text(settings_to_json(settings), encoding="utf-8")
    command = [sys.executable, "-u", "-m", entry_of(settings), str(settings_file), str(folder)]
    if workers > 1:
        command[2:3] = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={workers}", "-m"]
    # Ranks on one machine talk over loopback only.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
        # A rank that dies in native code says where it was.
        "PYTHONFAULTHANDLER": "1",
    }
    last: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    with (
        (folder / LOG_NAME).open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                last.append(line)
                log.write(line)
                point = parse_point(line)
                if point is not None:
                    on_point(point)
                elif not line.startswith("{"):
                    on_line(line.rstrip("\n"))
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code != 0:
        raise LaunchError(
            f"the trial ended with exit code {code}; the last lines of {folder / LOG_NAME}:\n{''.join(last)}"
        )
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return result


def entry_of(settings: RunSettings) -> str:
    """The module that runs a trial of these settings: that of what ships, or the one that searches its export."""
    return _SEARCHED if settings.export.search is not None else recipe_of(settings).entry


def threads_per_rank(settings: RunSettings) -> int:
    """CPU threads of one rank, as a study's lanes have them: one where the CPU trains, a GPU's share where GPUs do.

    Raises :class:`LaunchError` where the settings ask for a GPU and there is none.
    """
    import torch

    gpus = torch.cuda.device_count() if settings.runtime.device != "cpu" else 0
    if settings.runtime.device == "cuda" and not gpus:
        raise LaunchError("runtime.device is cuda, but torch sees no GPU here; use cpu or auto")
    return max(len(os.sched_getaffinity(0)) // gpus, 1) if gpus else 1


def parse_point(line: str) -> dict[str, float] | None:
    """The point of the curve that a line of the core's output is, or None for any other line."""
    if not line.startswith("step:"):
        return None
    return {name: float(value) for name, _, value in (word.rpartition(":") for word in line.split())}


def _end(process: subprocess.Popen[str]) -> None:
    """End our own ranks: asked first, killed when they do not listen."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
