"""A study whose terminal is closed, as the end of an ssh session does."""

import json

import pytest

from tests.cli.conftest import GOLFRAY, environment_in
from tests.cli.on_terminal import OnTerminal

pytestmark = pytest.mark.slow


def events(study):
    log = study / "events.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_a_study_whose_terminal_is_closed_ends_in_its_log_and_goes_on_later(golfray, write_space, wait):
    """The kernel tells every process on the terminal; Ray's must outlive it until the trial has ended by itself."""
    write_space(
        golfray.folder / "closed.yaml",
        fixed={"stop.steps": 1_000_000, "runtime.log_points": 100_000},
        budget={"trials": 1},
        replicates=1,
    )
    study = golfray.folder / "studies" / "closed"
    command = [str(GOLFRAY), "tune", "closed.yaml"]
    terminal = OnTerminal(command, cwd=golfray.folder, env={**environment_in(golfray.home), "TERM": "xterm"})
    wait(lambda: any(event["event"] == "progress" for event in events(study)), 600)
    terminal.hang_up()
    assert terminal.end() == 129
    log = events(study)
    assert (log[-1]["event"], log[-1]["reason"], log[-1]["complete"]) == ("study_ended", "hung up", False)
    (outcome,) = [event["outcome"] for event in log if event["event"] == "attempt_ended"]
    assert (outcome["kind"], outcome["reason"]) == ("cancelled", "hung up")
    # By its own loop, on servers that lived: the rank wrote what it had.
    assert json.loads((study / "trials/0000/attempt-1/result.json").read_text())["kind"] == "stopped"
    assert not [event for event in log if event["event"] == "observer_failed" and "Console" not in event["observer"]]
    assert golfray.run("status", study).code == 0
