"""``ls``, ``stop`` and ``logs -f`` from another shell than the one a study runs in."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from golfray.report.trial_log import LogTail
from golfray.sweep.events import encode_record
from golfray.sweep.study_folder import only_driver_of
from tests.report.scripted import Script, plain_study, ran, write_study

DRIVER = """\
import pathlib, signal, sys, time
from golfray.sweep.study_folder import only_driver_of
asked = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: asked.append(number))
with only_driver_of(pathlib.Path(sys.argv[1])):
    print("at work", flush=True)
    while not asked:
        time.sleep(0.02)
print(int(asked[0]), flush=True)
"""


@pytest.fixture
def studies(golfray):
    write_study(golfray.folder / "studies" / "muon", plain_study())
    yield golfray.folder / "studies"
    shutil.rmtree(golfray.folder / "studies")


@contextlib.contextmanager
def driving(folder, program=DRIVER):
    """A process that holds a study as a driver does, and says which signal ended it."""
    process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "at work\n"
    yield process
    process.kill()
    process.wait()


def test_ls_has_a_line_for_each_study_and_one_for_what_cannot_be_read(studies, golfray):
    (studies / "torn").mkdir()
    (studies / "torn" / "events.jsonl").write_text("{}\n{}\n")
    found = golfray.run("ls")
    lines = {line.split()[0]: line for line in found.out.splitlines()}
    assert lines.keys() == {"study", "muon", "torn"}
    assert "ended" in lines["muon"]
    assert "10 of 10" in lines["muon"]
    assert "1.7778 (t006)" in lines["muon"]
    assert "cannot be read" in lines["torn"]
    document = json.loads(golfray.run("ls", "--json").out)
    assert {study["study"]: study["best"] for study in document["studies"]} == {"muon": 6, "torn": None}


def test_ls_says_which_study_runs(studies, golfray):
    with only_driver_of(studies / "muon"):
        assert " running " in golfray.run("ls").out


def test_ls_where_there_is_none(tmp_path, golfray):
    assert golfray.run("ls", str(tmp_path / "nowhere")).out == f"no study in {tmp_path / 'nowhere'}/\n"


@pytest.mark.parametrize(("options", "number"), [([], signal.SIGTERM), (["--drain"], signal.SIGINT)])
def test_stop_sends_what_the_driver_ends_its_trials_at(studies, golfray, options, number):
    with driving(studies / "muon") as process:
        found = golfray.run("stop", "muon", *options)
        assert process.stdout.readline() == f"{int(number)}\n"
    assert found.code == 0
    assert ("ended; `golfray tune --resume" in found.out) == (options == [])


def test_stop_where_nothing_runs(studies, golfray):
    found = golfray.run("stop", "muon")
    assert (found.code, found.out) == (0, "studies/muon: nothing is at work on it\n")


def test_stop_does_not_reach_for_processes_of_another_machine(studies, golfray):
    with only_driver_of(studies / "muon"):
        signature = json.loads((studies / "muon" / "driver.json").read_text())
        (studies / "muon" / "driver.json").write_text(json.dumps({**signature, "host": "elsewhere"}))
        found = golfray.run("stop", "muon")
        assert found.code == 4
        assert "on elsewhere" in found.err
        # A number that another process has got since.
        later = {**signature, "started": 1.0, "pid": os.getpid()}
        (studies / "muon" / "driver.json").write_text(json.dumps(later))
        found = golfray.run("stop", "muon")
        assert found.code == 4
        assert "no such process" in found.err


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give up who it is")
def test_stop_says_whose_the_driver_is_where_it_is_another_users(studies, golfray):
    program = DRIVER.replace('    print("at work"', '    import os; os.setuid(65534)\n    print("at work"')
    # Root without the right to end processes of others: what everybody else is.
    stop = [
        "setpriv",
        "--bounding-set=-kill",
        sys.executable,
        "-c",
        "from golfray.cli.main import main; main()",
        "stop",
    ]
    with driving(studies / "muon", program):
        found = subprocess.run([*stop, "muon"], cwd=golfray.folder, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (4, "")
    assert "is another user's; call `golfray stop` as that user" in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.fixture
def running(golfray, monkeypatch):
    """A study whose first trial trains, and what its log has once that has ended."""
    monkeypatch.chdir(golfray.folder)
    script = Script()
    script.start()
    script.submit(script.ask())
    script.phase(0, "train")
    folder = golfray.folder / "studies" / "muon"
    write_study(folder, script)
    script.end(0, ran(1.8, 300_000))
    attempt = folder / "trials" / "0000" / "attempt-1"
    attempt.mkdir(parents=True)
    yield folder, attempt, encode_record(script.events[-1]) + "\n"
    shutil.rmtree(golfray.folder / "studies")


def test_a_tail_gives_whole_lines_once_and_at_the_end_the_rest(running):
    folder, attempt, end = running
    tail = LogTail("muon/0")
    assert (tail.more(), tail.ended) == ([], False)
    (attempt / "rank-0.log").write_bytes(b"one\ntw")
    assert tail.more() == [("rank-0.log", "one\n")]
    (attempt / "rank-1.log").write_bytes(b"caf\xc3\xa9\n")
    with (attempt / "rank-0.log").open("ab") as file:
        file.write(b"o\nthree")
    assert tail.more() == [("rank-0.log", "two\n"), ("rank-1.log", "café\n")]
    assert tail.more() == []
    with (folder / "events.jsonl").open("a") as file:
        file.write(end)
    assert tail.ended
    assert tail.more(whole=False) == [("rank-0.log", "three")]


def test_a_log_that_was_cut_is_read_anew(running):
    _, attempt, _ = running
    tail = LogTail("muon/0")
    (attempt / "rank-0.log").write_text("a first try\n")
    assert tail.more() == [("rank-0.log", "a first try\n")]
    (attempt / "rank-0.log").write_text("again\n")
    assert tail.more() == [("rank-0.log", "again\n")]


def test_logs_follow_until_the_attempt_has_ended(running, golfray):
    folder, attempt, end = running

    def go_on():
        with (attempt / "rank-0.log").open("a") as file:
            file.write("step 2\n")
        with (folder / "events.jsonl").open("a") as file:
            file.write(end)

    (attempt / "rank-0.log").write_text("step 1\n")
    later = threading.Timer(0.3, go_on)
    later.start()
    found = golfray.run("logs", "-f", "0", "--rank", "0")
    later.join()
    assert found.out == "step 1\nstep 2\n"
    assert found.code == 0
