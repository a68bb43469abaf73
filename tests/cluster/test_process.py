"""A study in a process of its own: two lanes at once, a quiet console, and nothing left when it is over."""

import json
import os
import pathlib
import subprocess
import sys

import psutil
import pytest

pytestmark = pytest.mark.slow

HERE = pathlib.Path(__file__).parent


def processes_that_mention(text):
    found = []
    for process in psutil.process_iter():
        try:
            if text in " ".join(process.cmdline()) or text in " ".join(process.environ().values()):
                found.append((process.pid, process.name()))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue  # gone, or not ours
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    home = folder / "home"
    home.mkdir()
    environment = {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
        "PYTHONWARNINGS": "ignore",
        # A cluster that somebody else left in the environment is not joined by accident.
        "RAY_ADDRESS": "127.0.0.1:1",
    }
    driver = subprocess.run(
        [sys.executable, HERE / "study_driver.py", folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr
    return folder, driver


def test_one_worker_on_two_cores_is_two_lanes_at_once(done):
    found = json.loads(done[1].stdout.splitlines()[-1])
    assert found["slots"] == 2
    assert found["describe"][0] == "2 trials at once: 2 CPUs free, one a worker, 1 worker a trial"
    assert sorted(found["together"]) == ["lane-0", "lane-1"]
    assert found["started"][2:] == ["job-2"]
    closed = "the executor was closed"
    assert found["ended"] == [["job-0", "enough"], ["job-1", closed], ["job-2", closed]]


def test_too_many_workers_is_said_and_not_waited_for(done):
    found = json.loads(done[1].stdout.splitlines()[-1])
    assert "3 workers needs 3 CPUs, one a worker, but Ray offers 2 CPUs here" in found["problem"]


def test_the_console_stays_quiet(done):
    assert len(done[1].stdout.splitlines()) == 1
    assert done[1].stderr == ""


def test_no_process_and_no_file_is_left_outside_the_study(done):
    folder = done[0]
    assert processes_that_mention(str(folder)) == []
    assert list((folder / "home").iterdir()) == []
    (line,) = [line for line in json.loads(done[1].stdout)["describe"] if "temporary files" in line]
    assert not pathlib.Path(line.split()[4].rstrip(",")).exists()


def test_what_a_rank_prints_lies_with_its_attempt(done):
    attempts = done[0] / "study" / "attempts"
    assert {path.name for path in attempts.iterdir()} <= {"0", "1", "2"}
    for number in ("0", "1"):
        assert (attempts / number / "rank-0.log").read_text().startswith("rank 0 enters data\nrank 0 enters compile\n")
    workers = [path.read_text() for path in (done[0] / "study" / "ray" / "logs").glob("worker-*.out")]
    (pointer,) = [line for text in workers for line in text.splitlines() if line.startswith("=== job job-0,")]
    assert pointer.endswith(str(attempts / "0" / "rank-0.log"))
    assert not any("enters data" in text for text in workers)
