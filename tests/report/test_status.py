"""Where a study stands: while a driver is at work, after one was lost, and at the end."""

import fcntl
import json
import os
import socket
import time

import pytest

from golfray.report.lookup import load_study
from golfray.report.status import StudyStatus, disk_bytes
from golfray.sweep.events import encode_record
from tests.report.scripted import Script, eventful_study, plain_study

# Five trials whose phases, of 20.5 s, the log gives 15 s each, and 4 s of one that trains: 1 s of each phase so far.
LANE_TIME = (
    "lane time: 72% of 1 min 23 s on 1 lane in training and final scoring; compile 16.5 s (20%), "
    "between trials 4.0 s (5%), data 2.0 s (2%), lane start 0.6 s (1%)"
)


def written(folder, events):
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(encode_record(event) + "\n" for event in events), encoding="utf-8")
    return load_study(str(folder))


@pytest.fixture
def in_the_middle(tmp_path, monkeypatch):
    """The plain study up to a point of its sixth trial."""
    monkeypatch.chdir(tmp_path)
    script = plain_study()
    last = next(number for number, event in enumerate(script) if event["event"] == "progress" and event["trial"] == 5)
    return written(tmp_path / "studies" / "muon", script.events[: last + 1])


@pytest.fixture
def driver(in_the_middle):
    """A lock as a driver holds it, and its signature."""
    handle = os.open(in_the_middle.folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    signature = {"pid": os.getpid(), "host": socket.gethostname(), "started": 1.8e9, "verb": "tune"}
    (in_the_middle.folder / "driver.json").write_text(json.dumps(signature))
    yield signature
    os.close(handle)


def lines_of(study, after=3.0):
    status = StudyStatus.of(study, study.record.last_event + after)
    return [line for line in status.lines() if not line.startswith("disk: ")]


def signed(driver):
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(driver["started"]))
    return f"`golfray {driver['verb']}` (process {driver['pid']} on {driver['host']}, since {since})"


def test_while_a_driver_is_at_work(in_the_middle, driver):
    folder = in_the_middle.folder
    assert lines_of(in_the_middle) == [
        f"study muon in {folder}: running, by {signed(driver)}",
        "  parameter-golf at scale laptop, 2 workers a trial, 1 at once, cap 339,000 bytes",
        "trials: 5 of 10 ended; 4 scored, 1 infeasible, 1 running",
        "  t005 sampler: train for 4.0 s, step 60, 25% trained, loss 5.0000",
        "best feasible: t004 (sampler), 1.8385 bits per byte, 317,004 bytes, margin +21,996",
        "seed noise: 0.0329 BPB (SD over 3 seeds)",
        "time: 1 min 26 s at work; left: P50 1 min 10 s, P90 1 min 10 s, drawn from 5 trials of it; "
        "last event 3.0 s ago",
        LANE_TIME,
    ]
    status = StudyStatus.of(in_the_middle, in_the_middle.record.last_event)
    assert (status.condition, status.next_command()) == ("running", None)
    assert status.document()["driver"] == driver


def test_while_its_driver_has_not_signed_yet(in_the_middle, driver):
    (in_the_middle.folder / "driver.json").write_text("")
    status = StudyStatus.of(in_the_middle, in_the_middle.record.last_event)
    assert status.lines()[0] == f"study muon in {in_the_middle.folder}: running, by a process that has not signed yet"
    assert status.condition == "running"


def test_while_it_is_tracked(in_the_middle, driver):
    """Another verb than tune holds the lock: no trial runs, and the study cannot be resumed for the moment."""
    tracker = {**driver, "verb": "track"}
    (in_the_middle.folder / "driver.json").write_text(json.dumps(tracker))
    lines = lines_of(in_the_middle, after=120.0)
    gone = "stopped before its end: its driver is gone"
    assert lines[0] == f"study muon in {in_the_middle.folder}: {gone}; at work on it: {signed(tracker)}"
    assert lines[3] == "  t005 sampler: was in train when the driver went"
    assert lines[-2:] == ["time: 1 min 23 s at work; last event 2 min 00 s ago", LANE_TIME]
    document = StudyStatus.of(in_the_middle, in_the_middle.record.last_event).document()
    assert (document["condition"], document["driver"], document["next_command"]) == ("interrupted", tracker, None)


def test_after_the_driver_was_lost(in_the_middle):
    lines = lines_of(in_the_middle, after=120.0)
    assert lines[0] == f"study muon in {in_the_middle.folder}: stopped before its end: its driver is gone"
    assert lines[3] == "  t005 sampler: was in train when the driver went"
    assert lines[-3:] == [
        "time: 1 min 23 s at work; last event 2 min 00 s ago",
        LANE_TIME,
        f"next: golfray tune --resume {in_the_middle.folder}",
    ]
    document = StudyStatus.of(in_the_middle, in_the_middle.record.last_event).document()
    assert (document["condition"], document["driver"], document["seconds_left"]) == ("interrupted", None, None)


def test_after_it_was_drained(tmp_path):
    study = written(tmp_path / "muon", eventful_study())
    lines = lines_of(study)
    assert lines[0] == f"study muon in {study.folder}: stopped before its end: interrupted"
    assert lines[2].endswith("; 3 scored, 1 crashed, 1 diverged, 1 cancelled; 2 with more than one attempt")
    assert lines[-1] == f"next: golfray tune --resume {study.folder}"


def test_a_study_tracked_elsewhere_is_resumed_there(tmp_path):
    events = eventful_study().events
    for event in events:
        if event["event"] in ("study_started", "study_resumed"):
            event["tracking_uri"] = "http://tracker.example.org:5000"
    study = written(tmp_path / "muon", events)
    command = f"golfray tune --resume {study.folder} --tracking-uri http://tracker.example.org:5000"
    assert lines_of(study)[-1] == f"next: {command}"
    assert StudyStatus.of(study, 2e9).document()["next_command"] == command


def test_at_the_end(tmp_path):
    study = written(tmp_path / "muon", plain_study())
    lines = lines_of(study)
    assert lines[0] == f"study muon in {study.folder}: ended, budget spent: 8 trials"
    assert lines[2] == "trials: 10 of 10 ended; 8 scored, 2 infeasible"
    assert lines[-1] == f"next: golfray show trial {study.folder}/t006"


def test_what_was_asked_and_does_not_run_yet_waits(tmp_path):
    """Confirmations are all asked at once."""
    script = Script()
    script.start(trials=1)
    script.run(1.9, 250_000, "preset")
    for _ in range(3):
        script.ask("replicate")
    script.submit(1)
    lines = lines_of(written(tmp_path / "muon", script))
    assert lines[2] == "trials: 1 of 4 ended; 1 scored, 1 running, 2 waiting"
    assert [line.partition(":")[0] for line in lines[3:5]] == ["  t001 replicate", "best feasible"]


def test_points_refused_for_their_size_stand_beside_the_trials_that_ran(tmp_path):
    script = Script()
    script.start(trials=2)
    script.run(1.9, 250_000, "preset")
    script.refuse_for_size(20_000)
    script.refuse_for_size(30_000)
    assert lines_of(written(tmp_path / "muon", script))[2] == (
        "trials: 1 of 4 ended; 1 scored; 2 points were refused before training, too large to fit"
    )


def test_disk_use_is_that_of_all_files_below(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "link").symlink_to("/")
    assert 1_000_000 <= disk_bytes(tmp_path) < 1_100_000
