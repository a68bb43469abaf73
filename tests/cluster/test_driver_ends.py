"""Studies in processes of their own whose driver ends, or a part of Ray that it cannot do without: what is left."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from tests.cluster.gone import wait_until_gone
from tests.marked import MARK, marked_processes

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 300


class Driver:
    """The process of fault_driver.py and all that came of it, known by a mark and by Ray's temporary folder."""

    def __init__(self, folder, *arguments):
        self.folder, self.mark, self.temp_folder = folder, uuid.uuid4().hex, None
        self.process = subprocess.Popen(
            [sys.executable, HERE / "fault_driver.py", folder, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
                "PYTHONWARNINGS": "ignore",
                MARK: self.mark,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self):
        self.temp_folder = pathlib.Path(self.process.stdout.readline().strip())
        return self

    def child(self, name):
        """The one process below the driver with this name, once it is there."""
        for _ in range(PATIENCE_SECONDS * 100):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                if process.name().startswith(name):
                    return process
            time.sleep(0.01)
        raise AssertionError(f"no {name} came up: {self.left()}")

    def end(self):
        """Exit code, what it said of its end, and what went to standard error."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, json.loads(out.splitlines()[-1]) if out else None, err

    def left(self):
        """Processes that came of it and still live, and those that still have a file of Ray's open."""
        found = marked_processes(self.mark)
        for process in pathlib.Path("/proc").glob("[0-9]*") if self.temp_folder else []:
            try:
                if any(os.readlink(handle).startswith(f"{self.temp_folder}/") for handle in (process / "fd").iterdir()):
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it ended while we looked
        return found

    def wait_until_all_are_gone(self):
        print(f"gone after {wait_until_gone(self.left, []):.1f} s")


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*arguments):
        started.append(Driver(tmp_path / "study", *arguments))
        return started[-1]

    yield start
    for driver in started:
        if driver.process.poll() is None:
            driver.process.kill()
        driver.process.communicate()
        driver.wait_until_all_are_gone()


@pytest.mark.parametrize(("server", "when"), [("gcs_server", "running"), ("raylet", "running")])
def test_a_server_of_ray_dies(start, server, when):
    driver = start(when).wait_until_ready()
    process = driver.child(server)
    process.kill()
    code, said, _ = driver.end()
    log = driver.folder / "ray" / "logs" / f"{server}.out"
    assert said["problem"] == (
        f"Ray's {server} (process {process.pid}) has died, see {log}; "
        f"`golfray tune --resume {driver.folder}` goes on from the event log"
    )
    assert code == 4
    assert driver.left() == []
    assert not driver.temp_folder.exists()
    assert log.is_file()


@pytest.mark.parametrize("actor", ["ray::Broker", "ray::Host"])
def test_an_actor_of_ours_dies(start, actor):
    driver = start("up").wait_until_ready()
    driver.child(actor).kill()
    code, said, _ = driver.end()
    assert said["problem"].startswith("the study's broker or the host of its lanes died: ")
    assert said["problem"].endswith(f"; `golfray tune --resume {driver.folder}` goes on from the event log")
    assert code == 4
    assert driver.left() == []


def test_the_driver_is_killed(start):
    driver = start("running").wait_until_ready()
    assert any("ray::RayTrainWorker" in command for command in driver.left())
    driver.process.kill()
    driver.process.wait()
    driver.wait_until_all_are_gone()
    assert not driver.temp_folder.exists()
    assert (driver.folder / "ray" / "logs" / "raylet.out").is_file()


def test_an_interruption_of_the_driver_itself_leaves_at_once(start):
    """Not of its study, which would end its trials first: this is what the third Ctrl-C comes to."""
    driver = start("running").wait_until_ready()
    os.killpg(driver.process.pid, signal.SIGINT)
    code, said, _ = driver.end()
    assert (code, said) == (130, {"interrupted": True})
    assert driver.left() == []
    assert not driver.temp_folder.exists()


def test_an_interruption_while_ray_hangs_in_its_start(start):
    driver = start("starting", "600")
    driver.child("raylet").suspend()
    driver.process.send_signal(signal.SIGINT)
    code, said, _ = driver.end()
    assert (code, said) == (130, {"interrupted": True})
    assert driver.left() == []


def test_a_start_that_takes_too_long(start):
    driver = start("starting", "1")
    code, said, _ = driver.end()
    lines = said["problem"].splitlines()
    assert lines[0] == "no local Ray cluster could be started: TimeoutError: it was not up within 1 s"
    assert lines[1].startswith(f"{driver.folder}/ray/")
    assert lines[1].endswith(" ends with:")
    assert len(lines) <= 7
    assert code == 4
    assert driver.left() == []
