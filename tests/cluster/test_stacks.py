"""Stacks of real processes, taken by py-spy: one that waits, one that is stopped, one that may not be looked at."""

import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

from golfray.cluster.stacks import Stack, describe_stacks, keep_stacks, take_stacks

# A rank, as far as stacks go: the thread that runs a job is known by a frame of this name.
SOURCE = """
import threading, time
def wait():
    print("here", flush=True)
    time.sleep(1000)
def _run_job():
    wait()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
_run_job()
"""


@pytest.fixture
def rank(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SOURCE)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    process.stdout.readline()
    while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
        pass  # it is about to
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_waiting_process(rank):
    stack = take_stacks({0: rank.pid})[0]
    assert (stack.place, stack.stopped) == ("script.py:5", False)
    assert f"_run_job ({pathlib.Path(rank.args[1])}:7)" in stack.text
    assert stack.text.count("thread ") == 2


def test_a_stopped_process_is_named_and_stays_stopped(rank):
    rank.send_signal(signal.SIGSTOP)
    os.waitpid(rank.pid, os.WUNTRACED)
    stack = take_stacks({0: rank.pid})[0]
    assert (stack.place, stack.stopped) == ("script.py:5", True)
    assert psutil.Process(rank.pid).status() == psutil.STATUS_STOPPED


def test_a_process_that_is_gone(rank):
    rank.kill()
    rank.wait()
    stack = take_stacks({0: rank.pid})[0]
    assert stack.place is None
    assert stack.text.startswith("no stack: Error: ")
    assert "\n" not in stack.text


def test_a_process_that_is_hidden_is_said_and_ends_nobody(rank, monkeypatch):
    """As where /proc is mounted with hidepid: psutil is denied what py-spy may still see."""

    def denied(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "status", denied)
    assert take_stacks({0: rank.pid})[0].place == "script.py:5"


def test_no_time_is_said_and_not_waited_for(rank):
    assert take_stacks({0: rank.pid}, limit_s=0.0)[0].text == "no stack: py-spy did not end in time"
    assert psutil.Process(rank.pid).status() in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)


def test_a_process_that_may_not_be_looked_at(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE\n" + SOURCE)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    process.stdout.readline()
    code = f"from golfray.cluster.stacks import take_stacks; print(take_stacks({{0: {process.pid}}})[0].text)"
    # Root may look at everything, unless it lays that down.
    powerless = ["setpriv", "--bounding-set=-sys_ptrace"] if os.getuid() == 0 else []
    asked = subprocess.run(
        [*powerless, sys.executable, "-c", code],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    process.kill()
    process.wait()
    process.stdout.close()
    assert asked.stdout.startswith("no stack: "), asked.stderr
    assert "ermission denied" in asked.stdout


def test_where_the_ranks_are_in_few_words():
    stacks = {
        0: Stack("...", "gang.py:23", False),
        1: Stack("...", "loop.py:88", True),
        2: Stack("...", "gang.py:23", False),
        3: Stack("no stack: why", None, False),
        4: Stack("no stack: why", None, True),
    }
    assert (
        describe_stacks(stacks) == "rank 1 was stopped at loop.py:88, rank 4 was stopped, ranks 0, 2 were at gang.py:23"
    )


def test_they_are_kept_in_the_attempts_folder(tmp_path):
    folder = tmp_path / "trials" / "0003" / "attempt-1"
    stacks = {1: Stack("thread a", None, True), 0: Stack("thread b", None, False)}
    assert keep_stacks(stacks, folder, tmp_path) == "stacks in trials/0003/attempt-1/stacks.txt"
    assert (folder / "stacks.txt").read_text() == "rank 0\nthread b\n\nrank 1 (stopped by a signal)\nthread a\n"
    folder.joinpath("stacks.txt").unlink()
    folder.joinpath("stacks.txt").mkdir()
    assert "could not be written to" in keep_stacks(stacks, folder, tmp_path)
