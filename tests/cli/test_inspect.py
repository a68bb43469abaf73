"""`status`, `show trial` and `logs` as they are typed."""

import os
import pathlib
import subprocess

import pytest

from golfray.sweep.events import encode_record
from tests.cli.conftest import GOLFRAY
from tests.report.scripted import eventful_study


@pytest.fixture(scope="module")
def ends(golfray):
    """What each of them says of a study below ./studies."""
    folder = golfray.folder / "studies" / "muon"
    attempt = folder / "trials" / "0001" / "attempt-2"
    attempt.mkdir(parents=True)
    for rank in range(2):
        (attempt / f"rank-{rank}.log").write_text(f"rank {rank} of lane-0\n")
    lines = "".join(encode_record(event) + "\n" for event in eventful_study())
    (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    commands = {
        "status": ["status"],
        "status -v": ["status", "muon", "-v"],
        "logs": ["logs", "1"],
        "logs --rank": ["logs", "studies/muon/t001", "--rank=1"],
        "show trial": ["show", "trial", "t001"],
        "no study": ["status", "moun"],
        "a name that clears the screen": ["status", "mu\x1b[2Jon"],
        "no trial": ["show", "trial", "muon/9"],
        "no rank": ["logs", "1", "--rank=2"],
    }
    before = {path: path.stat().st_mtime_ns for path in golfray.folder.rglob("*")}
    ended = golfray.run_all(commands)
    # Looking changes nothing.
    assert {path: path.stat().st_mtime_ns for path in golfray.folder.rglob("*")} == before
    return ended


def test_status(ends):
    assert (ends["status"].code, ends["status"].err) == (0, "")
    lines = ends["status"].out.splitlines()
    assert lines[0] == "study muon in studies/muon: stopped before its end: interrupted"
    assert lines[-1] == "next: golfray tune --resume studies/muon"
    # With -v every trial, in the order of the table.
    assert [line.split()[1] for line in ends["status -v"].out.splitlines() if line.startswith("* ")] == ["t004"]


def test_logs(ends):
    assert ends["logs"].out == "==> rank-0.log <==\nrank 0 of lane-0\n==> rank-1.log <==\nrank 1 of lane-0\n"
    assert ends["logs --rank"].out == "rank 1 of lane-0\n"


def test_show_trial(ends):
    assert ends["show trial"].code == 0
    assert "attempt 2 on lane-0: 1.8301 BPB, 318,200 bytes, margin +20,800 after 5.0 s\n" in ends["show trial"].out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no study", "golfray: moun: no study here (events.jsonl is missing); did you mean muon?"),
        (
            "a name that clears the screen",
            r"golfray: mu\x1b[2Jon: no study here (events.jsonl is missing); did you mean muon?",
        ),
        ("no trial", "golfray: muon/9: no trial 9 in studies/muon: it has t000 to t005"),
        ("no rank", "golfray: 1: has no log of rank 2; it has ranks 0, 1"),
    ],
)
def test_what_is_not_there(ends, name, message):
    assert (ends[name].code, ends[name].out, ends[name].one_line()) == (2, "", message)


def test_nothing_is_coloured_off_a_terminal_whatever_the_environment_says(golfray, ends):
    environment = {**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "HOME": str(golfray.home)}
    ended = subprocess.run(
        [GOLFRAY, "status", "-v"], cwd=pathlib.Path(golfray.folder), env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout
