"""Studies that do not end as one hopes: nothing fits, the tracker is broken, somebody interrupts."""

import json
import os
import pathlib
import re
import signal

import pytest

from tests.cli.documented import read_tables

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


def test_nothing_feasible_two_lanes_and_a_broken_tracker(golfray, write_space, cap_bytes):
    """Exit 7 with the table, though MLflow's server is not there."""
    cap = cap_bytes - 12_000
    # Points that a person wrote run where a fifth less of a model would fit; a sampler's would not.
    space = write_space(
        golfray.folder / "tight.yaml",
        fixed={"workers": 1, "cap_bytes": cap},
        budget={"trials": 4},
        replicates=1,
        first_points=[{"optimizer.matrix_lr": 0.02}, {"optimizer.matrix_lr": 0.05}],
    )
    study = golfray.folder / "elsewhere" / "tight"
    server = "http://127.0.0.1:9"
    started = golfray.start("tune", space, f"--study-dir={study}", f"--tracking-uri={server}")
    ended = started.end()
    assert (ended.code, ended.err) == (7, ""), ended
    assert started.left_processes() == []
    log = events(study)
    assert log[-1]["event"] == "study_ended"
    outcomes = [event["outcome"] for event in log if event["event"] == "attempt_ended"]
    assert [outcome["kind"] for outcome in outcomes] == ["infeasible"] * 4

    assert f"MLflow at {server} does not answer (Connection refused)" in ended.out
    assert f"complete it with: golfray track {study} --tracking-uri {server}" in ended.out

    assert ended.out.count("OVER CAP") == 4
    assert f"best feasible: none; no trial scored within the cap of {cap:,} bytes" in ended.out
    assert "best so far" not in ended.out
    assert not re.search(r"^\*\s+t\d", ended.out, re.M)
    assert "train it again" not in ended.out

    cpus = int(re.search(r"at once: (\d+) CPUs? free, one a worker, 1 worker a trial", ended.out)[1])
    assert log[0]["slots"] == min(cpus, 4)
    lanes = {event["lane"] for event in log if event["event"] == "attempt_started"}
    assert lanes == {f"lane-{number}" for number in range(log[0]["slots"])}


def started_on(golfray, space, study, wait):
    """A study whose first trial trains."""
    started = golfray.start("tune", space)
    started.wait_for_line("t000 preset: started on lane-0")
    wait(lambda: any(event["event"] == "progress" for event in events(study)))
    return started


def test_the_first_ctrl_c_lets_the_running_trial_end(golfray, write_space, wait):
    """It reaches the whole group, ranks included, as Ctrl-C in a terminal does."""
    space = write_space(golfray.folder / "drained.yaml", fixed={"stop.steps": 400, "runtime.log_points": 100})
    study = golfray.folder / "studies" / "drained"
    started = started_on(golfray, space, study, wait)
    os.killpg(started.process.pid, signal.SIGINT)
    line = started.wait_for_line("interrupted: no more trials are started; the running trial needs ")
    assert line.endswith(" more; Ctrl-C again ends what runs, a third time leaves at once\n")
    ended = started.end()
    assert (ended.code, ended.err) == (130, "golfray: interrupted\n")
    assert started.left_processes() == []
    log = events(study)
    assert (log[-1]["event"], log[-1]["reason"], log[-1]["complete"]) == ("study_ended", "interrupted", False)
    lanes = log[0]["slots"]
    ends = [event["outcome"]["kind"] for event in log if event["event"] == "attempt_ended"]
    # On a machine with several lanes as many trials ran; those that fit or not, each came to its score.
    assert len(ends) <= lanes
    assert set(ends) <= {"scored", "infeasible"}
    assert ends[0] == "scored"
    assert f"go on: golfray tune --resume {study}\n" in ended.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_running_trial_and_the_study(golfray, write_space, wait, number):
    """The second SIGINT, or the first SIGTERM, which reaches only the process that was meant."""
    name = number.name.lower()
    space = write_space(golfray.folder / f"{name}.yaml", fixed={"stop.steps": 1_000_000, "runtime.log_points": 100_000})
    study = golfray.folder / "studies" / name
    started = started_on(golfray, space, study, wait)
    if number == signal.SIGINT:
        os.killpg(started.process.pid, number)
        started.wait_for_line("interrupted: no more trials are started; the running trial needs an unknown time more")
        os.killpg(started.process.pid, number)
    else:
        started.process.send_signal(number)
    word, code = ("interrupted", 130) if number == signal.SIGINT else ("terminated", 143)
    ended = started.end()
    assert ended.code == code
    assert ended.err.splitlines() == [f"golfray: {word}"]
    assert started.left_processes() == []

    log = events(study)
    assert (log[-1]["event"], log[-1]["reason"]) == ("study_ended", word)
    asked = {event["trial"] for event in log if event["event"] == "trial_asked"}
    ends = {event["trial"]: event["outcome"] for event in log if event["event"] == "attempt_ended"}
    assert set(ends) == asked
    assert {outcome["kind"] for outcome in ends.values()} == {"cancelled"}
    # By its own loop: the rank wrote what it had, and was not killed.
    assert json.loads((study / "trials/0000/attempt-1/result.json").read_text())["kind"] == "stopped"
    assert f"{word}: ending the running trials; once more to leave at once" in ended.out
    assert re.search(r"^\s+t000\s+preset\s+cancelled", ended.out, re.M)
    assert not os.path.lexists(temporary_folder(log[0]))
    assert list(golfray.home.iterdir()) == []


def test_the_third_ctrl_c_leaves_and_leaves_nothing_behind(golfray, write_space, wait):
    space = write_space(golfray.folder / "left.yaml", fixed={"stop.steps": 1_000_000, "runtime.log_points": 100_000})
    study = golfray.folder / "studies" / "left"
    started = started_on(golfray, space, study, wait)
    for line in ("no more trials are started", "ending the running trials", None):
        os.killpg(started.process.pid, signal.SIGINT)
        if line is not None:
            started.wait_for_line(line)
    ended = started.end()
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "golfray: interrupted"), ended
    assert started.left_processes() == []
    log = events(study)
    assert (log[-1]["event"], log[-1]["reason"], log[-1]["complete"]) == ("study_ended", "interrupted", False)
    assert not os.path.lexists(temporary_folder(log[0]))


def test_a_study_outlives_the_reader_of_its_output(golfray, write_space):
    write_space(golfray.folder / "unread.yaml", budget={"trials": 2}, replicates=1)
    started = golfray.start("tune", "unread.yaml")
    started.wait_for_line("t000 preset: started on lane-0")
    started.process.stdout.close()
    error = started.process.stderr.read()
    assert (started.process.wait(300), error) == (141, "")
    log = events(golfray.folder / "studies" / "unread")
    assert (log[-1]["event"], log[-1]["complete"]) == ("study_ended", True)
    (failed,) = [event for event in log if event["event"] == "observer_failed"]
    assert (failed["observer"], "BrokenPipeError" in failed["error"]) == ("ConsoleObserver", True)


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
    word, code = ("interrupted", 130) if number == signal.SIGINT else ("terminated", 143)
    assert (ended.code, ended.out.count("study ")) == (code, 0), ended
    assert ended.err.splitlines()[-1] == f"golfray: {word}"
    assert started.left_processes() == []


def test_eight_trials_are_forty_lines_and_as_documents_are_on_the_page(golfray, write_space):
    """The same study twice: off a terminal, and with documents."""
    write_space(golfray.folder / "eight.yaml", budget={"trials": 8})
    lines = golfray.start("tune", "eight.yaml").end()
    assert (lines.code, lines.err) == (0, ""), lines
    # Eight trials and the replicate of the first.
    assert lines.out.count("\n") <= 40, lines.out
    assert "\x1b" not in lines.out
    json_run = golfray.start("tune", "eight.yaml", "--study-dir=again", "--json").end()
    assert json_run.code == 0, json_run
    tables = read_tables()
    documents = [json.loads(line) for line in json_run.out.splitlines()]
    assert [mistake for document in documents for mistake in tables.mistakes(document)] == []
    *logged, study = documents
    assert (study["kind"], study["exit_code"], study["complete"]) == ("study", 0, True)
    # As they are in the log, but for the points.
    told = [{name: value for name, value in event.items() if name not in ("schema", "kind")} for event in logged]
    assert told == [event for event in events(golfray.folder / "again") if event["event"] != "progress"]
    assert study["trials"][0]["trial"] == study["best"]
    assert len(study["trials"]) == 9
    # What is for a person is on standard error, in the same words.
    said = [line.split(":")[0] for line in json_run.err.splitlines() if line.startswith("t00")]
    assert said == [line.split(":")[0] for line in lines.out.splitlines() if line.startswith("t00")]
