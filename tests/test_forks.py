"""Forked processes behave as those of a shell do, and none outlives the test that started it."""

import os
import pathlib
import signal
import time

from tests.forks import Forks


def test_outputs_code_folder_and_environment_are_its_own(running_forks: Forks, tmp_path: pathlib.Path) -> None:
    program = "import os, sys; print(os.getcwd(), os.environ['WORD'], *sys.argv[1:]); sys.exit('the end')"
    process = running_forks.start(program, "a", 1, folder=tmp_path, environment={"WORD": "word"})
    assert process.end() == (1, f"{tmp_path} word a 1\n", "the end\n")


def test_a_signal_is_its_exit_code(running_forks: Forks) -> None:
    process = running_forks.start("import signal; signal.pause()")
    os.kill(process.pid, signal.SIGKILL)
    assert process.end() == (-signal.SIGKILL, "", "")


def test_what_nobody_waits_for_any_more_is_killed(running_forks: Forks) -> None:
    process = running_forks.start("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    pid = process.pid
    deadline = time.monotonic() + 60
    while process.said() != f"{pid}\n":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.abandon()
    while pathlib.Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
