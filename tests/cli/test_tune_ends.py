"""Studies that do not end as one hopes: nothing fits, the tracker is broken, somebody interrupts."""

import json
import os
import pathlib
import re
import signal

import pytest

pytestmark = pytest.mark.slow


def events(folder: pathlib.Path) -> list[dict]:
    """What the log holds; its last line may still be being written."""
    log = folder / "events.jsonl"
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def temporary_folder(header: dict) -> str:
    (line,) = [line for line in header["describe"] if "temporary files" in line]
    return re.search(r"in (\S+),", line)[1]


def test_nothing_feasible_two_lanes_and_a_broken_tracker(golfray, write_space):
    """Exit 7 with the table, though MLflow cannot even open its store: here a folder has its name."""
    space = write_space(
        golfray.folder / "tight.yaml",
        fixed={"workers": 1, "cap_bytes": 50_000},
        budget={"trials": 4},
        replicates=1,
    )
    study = golfray.folder / "elsewhere" / "tight"
    (study / "mlflow.db").mkdir(parents=True)
    started = golfray.start("tune", space, f"--study-dir={study}")
    ended = started.end()
    assert (ended.code, ended.err) == (7, ""), ended
    assert started.left_processes() == []
    log = events(study)
    assert log[-1]["event"] == "study_ended"
    outcomes = [event["outcome"] for event in log if event["event"] == "attempt_ended"]
    assert [outcome["kind"] for outcome in outcomes] == ["infeasible"] * 4

    (failed,) = [event for event in log if event["event"] == "observer_failed"]
    assert failed["observer"] == "MlflowObserver"
    assert "(study_started): OperationalError: unable to open database file" in failed["error"]
    assert "MlflowObserver stopped: TrackingError: MLflow failed at event " in ended.out
    assert f"run `golfray ui {study}`" in ended.out

    assert ended.out.count("OVER CAP") == 4
    assert "best feasible: none; no trial scored within the cap of 50,000 bytes" in ended.out
    assert "best so far" not in ended.out
    assert not re.search(r"^\*\s+t\d", ended.out, re.M)
    assert "train it again" not in ended.out

    cpus = int(re.search(r"at once: (\d+) CPUs? free, one a worker, 1 worker a trial", ended.out)[1])
    assert log[0]["slots"] == min(cpus, 4)
    lanes = {event["lane"] for event in log if event["event"] == "attempt_started"}
    assert lanes == {f"lane-{number}" for number in range(log[0]["slots"])}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_running_trial_and_the_study(golfray, write_space, wait, number):
    """SIGINT reaches the whole group, as Ctrl-C in a terminal does; SIGTERM only the process that was meant."""
    name = number.name.lower()
    space = write_space(golfray.folder / f"{name}.yaml", fixed={"stop.steps": 1_000_000, "runtime.log_points": 100_000})
    study = golfray.folder / "studies" / name
    started = golfray.start("tune", space)
    started.wait_for_line("t000 preset: started on lane-0")
    wait(lambda: any(event["event"] == "progress" for event in events(study)))
    if number == signal.SIGINT:
        os.killpg(started.process.pid, number)
    else:
        started.process.send_signal(number)
    ended = started.end()
    assert ended.code == 130
    assert ended.err.splitlines() == ["golfray: interrupted"]
    assert started.left_processes() == []

    log = events(study)
    assert (log[-1]["event"], log[-1]["reason"]) == ("study_ended", "interrupted")
    asked = {event["trial"] for event in log if event["event"] == "trial_asked"}
    ends = {event["trial"]: event["outcome"] for event in log if event["event"] == "attempt_ended"}
    assert set(ends) == asked
    assert {outcome["kind"] for outcome in ends.values()} == {"cancelled"}
    # By its own loop: the rank wrote what it had, and was not killed.
    assert json.loads((study / "trials/0000/attempt-1/result.json").read_text())["kind"] == "stopped"
    assert "interrupted: ending the running trials; once more to leave at once" in ended.out
    assert re.search(r"^\s+t000\s+preset\s+cancelled", ended.out, re.M)
    assert not os.path.lexists(temporary_folder(log[0]))
    assert list(golfray.home.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_ray_starts_leaves_nothing(golfray, write_space, wait, number):
    space = write_space(golfray.folder / f"early{number}.yaml")
    study = golfray.folder / "studies" / f"early{number}"
    started = golfray.start("tune", space)
    # The token is the first thing that is written for Ray, the temporary folder the next.
    wait((study / "ray" / "driver.log").exists)
    wait(lambda: any("gcs_server" in command for command in started.left_processes()))
    started.process.send_signal(number)
    ended = started.end()
    assert (ended.code, ended.out.count("study ")) == (130, 0), ended
    assert ended.err.splitlines()[-1] == "golfray: interrupted"
    assert started.left_processes() == []
