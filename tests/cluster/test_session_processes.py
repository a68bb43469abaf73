"""Sessions of nobody: which processes are theirs, what becomes of their folders, and who ends them. Without Ray."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from golfray.cluster.session_processes import MARK, end_processes, processes_of
from golfray.cluster.temp_folder import TempFolder, sweep_dead_folders
from golfray.cluster.watchdog import Watchdog

ROOT = pathlib.Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


@pytest.fixture
def short_temp(monkeypatch):
    """A system's temporary folder of this test's own, short enough for Ray's sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr("golfray.cluster.temp_folder._ALWAYS_SHORT", folder)
        yield pathlib.Path(folder)


@pytest.fixture
def start():
    """Start a process that sleeps; it is ended after the test."""
    started = []

    def start(command=SLEEP, **environment):
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE)
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it never came to be")


def titled(name, path):
    """A process that looks like one of Ray's: with a title over its environment, and a log open."""
    code = f"import ctypes, time; log = open({str(path)!r}, 'w'); ctypes.CDLL(None).prctl(15, b{name!r}, 0, 0, 0)"
    return [sys.executable, "-c", f"{code}; print(flush=True); time.sleep(600)"]


def test_marked_and_titled_processes_belong_and_readers_do_not(tmp_path, start):
    log = tmp_path / "raylet.out"
    marked = start(**{MARK: str(tmp_path)})
    agent = start(titled("ray::Agent", log))
    reader = start(titled("tail", log))
    other = start(**{MARK: str(tmp_path / "other")})
    assert {process.pid for process in processes_of(tmp_path, ())} == {marked.pid, agent.pid}
    assert {process.pid for process in processes_of(tmp_path, {agent.pid})} == {marked.pid}
    assert end_processes(tmp_path, (), patience_s=10.0) == []
    assert not psutil.pid_exists(marked.pid)
    assert not psutil.pid_exists(agent.pid)
    assert reader.poll() is other.poll() is None


def test_a_stopped_process_ends_too(tmp_path, start):
    process = start(**{MARK: str(tmp_path)})
    psutil.Process(process.pid).suspend()
    assert end_processes(tmp_path, (), patience_s=10.0) == []
    assert not psutil.pid_exists(process.pid)


def test_the_folder_is_private_short_and_keeps_the_logs(short_temp, tmp_path):
    folder = TempFolder(tmp_path / "logs")
    assert folder.path.parent == short_temp
    assert folder.path.stat().st_mode & 0o077 == 0
    assert json.loads((folder.path / "owner.json").read_text())["pid"] == os.getpid()
    session = folder.ray_folder / "session_latest" / "logs"
    session.mkdir(parents=True)
    (session / "raylet.out").write_text("hello")
    assert (tmp_path / "logs" / "raylet.out").read_text() == "hello"
    folder.discard()
    assert not folder.path.exists()
    assert not (tmp_path / "logs").is_symlink()
    assert (tmp_path / "logs" / "raylet.out").read_text() == "hello"


def test_a_folder_whose_logs_cannot_be_kept_goes_all_the_same(short_temp, tmp_path):
    folder = TempFolder(tmp_path / "logs")
    (folder.ray_folder / "session_latest" / "logs").mkdir(parents=True)
    (tmp_path / "logs").unlink()
    (tmp_path / "logs").symlink_to(folder.ray_folder / "session_latest" / "logs")
    (folder.path / "owner.json").write_text("{")
    with pytest.raises(ValueError, match="Expecting property name"):
        folder.discard()
    assert not folder.path.exists()


DRIVER = """
import pathlib, subprocess, sys, time
from golfray.cluster.session_processes import MARK
from golfray.cluster.temp_folder import TempFolder
from golfray.cluster.watchdog import Watchdog
import os, tempfile
tempfile.tempdir = sys.argv[1]
folder = TempFolder(pathlib.Path(sys.argv[1]) / "logs")
os.environ[MARK] = str(folder.path)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
watchdog = Watchdog(folder.path)
print(folder.path, child.pid, watchdog.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def driver(short_temp):
    """A driver with a folder, a process of its session, and a watchdog: (process, folder, child, watchdog)."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, short_temp], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    folder, child, watchdog = process.stdout.readline().split()
    yield process, pathlib.Path(folder), int(child), int(watchdog)
    process.kill()
    process.wait()
    process.stdout.close()
    end_processes(pathlib.Path(folder), (), patience_s=10.0)


def test_the_watchdog_of_a_killed_driver_ends_everything_and_itself(driver):
    process, folder, child, watchdog = driver
    assert {found.pid for found in processes_of(folder, ())} == {child, watchdog}
    process.kill()
    process.wait()
    wait_until(lambda: processes_of(folder, ()) == [])
    assert not folder.exists()


def test_the_watchdog_goes_when_it_is_told(tmp_path, start):
    bystander = start(**{MARK: str(tmp_path)})
    watchdog = Watchdog(tmp_path)
    assert psutil.pid_exists(watchdog.pid)
    watchdog.dismiss()
    assert not psutil.pid_exists(watchdog.pid)
    assert bystander.poll() is None
    assert tmp_path.exists()


def test_a_watchdog_that_does_not_hear_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("golfray.cluster.watchdog._PATIENCE_SECONDS", 0.2)
    watchdog = Watchdog(tmp_path)
    os.kill(watchdog.pid, signal.SIGSTOP)
    watchdog.dismiss()
    assert not psutil.pid_exists(watchdog.pid)


def test_what_driver_and_watchdog_left_is_swept(driver):
    process, folder, child, watchdog = driver
    assert sweep_dead_folders() == [], "its driver lives"
    for pid in (watchdog, process.pid):
        os.kill(pid, 9)
    process.wait()
    assert psutil.pid_exists(child)
    assert sweep_dead_folders() == [folder]
    assert not folder.exists()
    wait_until(lambda: processes_of(folder, ()) == [])


def test_folders_that_are_not_ours_to_sweep(short_temp):
    (short_temp / "golfray-of-an-older-version").mkdir()
    target = short_temp / "target"
    target.mkdir()
    (target / "owner.json").write_text("{}")
    (short_temp / "golfray-link").symlink_to(target)
    if os.getuid() == 0:
        foreign = short_temp / "golfray-foreign"
        foreign.mkdir()
        (foreign / "owner.json").write_text("{}")
        os.chown(foreign, 65534, 65534)
    before = sorted(short_temp.rglob("*"))
    assert sweep_dead_folders() == []
    assert sorted(short_temp.rglob("*")) == before
