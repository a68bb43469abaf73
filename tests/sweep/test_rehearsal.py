import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from golfray.sweep.rehearsal import NO_CACHE, Rehearsal, RehearsalFailed, rehearse
from tests.marked import MARK, marked_processes


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.fixture
def in_empty_folders(tmp_path, monkeypatch) -> Path:
    """Everything that a process may write into by habit is an empty folder here."""
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "GOLFRAY_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow  # a dry run of tests/cli, which is fast, rehearses with two ranks as well and looks at every file
@pytest.mark.parametrize(("workers", "lanes"), [(2, 1), (1, 2)])
def test_real_ranks_compute_a_few_steps_and_write_nothing(tiny_settings, in_empty_folders, workers, lanes) -> None:
    before = files_below(in_empty_folders)
    found = rehearse(tiny_settings(), workers, lanes)
    assert files_below(in_empty_folders) == before
    assert all(value > 0 for value in dataclasses.astuple(found))
    # A backward pass is never free, and time does not run slower than the CPU.
    assert found.micro_s_per_token > found.score_s_per_token
    assert found.slowdown > 0.9


def test_nothing_can_be_compiled_into_any_folder() -> None:
    assert Path(NO_CACHE).is_dir()
    with pytest.raises(OSError, match=r"No such file|not permitted|denied"):
        (Path(NO_CACHE) / "compiled").mkdir()


def test_a_configuration_that_cannot_run_says_why_and_leaves_no_process(tiny_settings, monkeypatch) -> None:
    monkeypatch.setenv(MARK, mark := f"rehearsal-{os.getpid()}")
    broken = tiny_settings(model={"num_heads": 3})
    with pytest.raises(RehearsalFailed, match=r"a training step failed on this machine \(exit code 1\): .+") as caught:
        rehearse(broken, 2, 1)
    assert caught.value.exit_code == 4
    # Both ranks fail for the same reason, which is said once.
    assert str(caught.value).count("exit code") == 1
    assert marked_processes(mark) == []


KILLED = r"^rank 1 .* was killed on this machine \(SIGKILL\), most likely because memory ran out for 2 such processes"


@pytest.mark.parametrize(
    ("ending", "joined", "said"),
    [
        (signal.SIGKILL, False, KILLED),
        (signal.SIGABRT, False, r"^rank 1 of a training step was ended on this machine by SIGABRT$"),
        # Rank 0 complains of its peer then, which is no reason.
        pytest.param(signal.SIGKILL, True, KILLED, marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_killed_is_named_and_its_peers_end(tiny_settings, monkeypatch, ending, joined, said) -> None:
    monkeypatch.setenv(MARK, mark := f"rehearsal-{os.getpid()}-{ending}-{joined}")

    def rank_one() -> psutil.Process | None:
        # By the command's own arguments: RANK WORKERS PORT PARENT.
        ranks = [child for child in psutil.Process().children() if "golfray.sweep.rehearsal" in child.cmdline()]
        found = next((child for child in ranks if child.cmdline()[-4] == "1"), None)
        return found if found is not None and (not joined or found.net_connections()) else None

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rehearsing = pool.submit(rehearse, tiny_settings(), 2, 1)
        while (victim := rank_one()) is None:
            assert not rehearsing.done()
            time.sleep(0.01)
        victim.send_signal(ending)
        with pytest.raises(RehearsalFailed, match=said) as caught:
            rehearsing.result()
    assert caught.value.exit_code == 4
    assert marked_processes(mark) == []


RANK = """
import sys
from golfray.sweep.rehearsal import end_with
print("up", flush=True)
end_with(int(sys.argv[1]))
"""
KILLED_PARENT = """
import os, subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())], stdout=subprocess.PIPE)
rank.stdout.readline()
print(rank.pid, flush=True)
rank.wait()
"""


def lives(process: psutil.Process) -> bool:
    try:
        # In a container without an init nobody reaps the dead.
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def test_a_rank_ends_with_whoever_started_it() -> None:
    command = [sys.executable, "-c", KILLED_PARENT, RANK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        rank = psutil.Process(int(parent.stdout.readline()))
        assert rank.is_running()
        parent.kill()
    deadline = time.monotonic() + 60
    while lives(rank):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_step_shares_the_tokens_and_not_the_update(tiny_settings) -> None:
    settings = tiny_settings(batch={"tokens": 512})
    found = Rehearsal(micro_s_per_token=0.001, update_s=0.1, score_s_per_token=0.001, slowdown=1.0)
    assert found.step_s(settings, 1) == pytest.approx(0.612)
    assert found.step_s(settings, 4) == pytest.approx(0.228)
