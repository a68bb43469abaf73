"""`golfray train --clock-trace`: a run that a clock ended, told again by its readings, gives the same bytes."""

import hashlib
import json

import pytest

pytestmark = pytest.mark.slow

SECONDS = 3.0
ARTIFACT = "final_model.int8.ptz"


@pytest.fixture(scope="module")
def clocked(tiny_sets):
    """Options of a run of two ranks that lasts three seconds, with schedules that follow the time."""
    changed = ("--set=stop.", "--set=workers=")
    return [
        *(option for option in tiny_sets if not option.startswith(changed)),
        "--set=workers=2",
        "--set=stop.steps=null",
        f"--set=stop.seconds={SECONDS}",
        "--set=muon.momentum_warmup_share=0.3",
    ]


@pytest.fixture(scope="module")
def first(golfray, clocked):
    """The run by the clock."""
    ended = golfray.run("train", "--folder=first", *clocked)
    assert (ended.code, ended.err) == (0, ""), ended
    return golfray.folder / "first"


def result_of(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_the_same_bytes_and_steps(golfray, clocked, first):
    ended = golfray.run("train", "--folder=again", *clocked, "--clock-trace=first/clock.json")
    assert (ended.code, ended.err) == (0, ""), ended
    again = golfray.folder / "again"
    readings = len(json.loads((first / "clock.json").read_text())["readings_s"])
    assert f"clock: {readings:,} readings of first/clock.json instead of the time that passes\n" in ended.out
    assert json.loads((again / "settings.json").read_text())["clock_trace"] == str(first / "clock.json")
    results = [result_of(folder) for folder in (first, again)]
    assert [result["fidelity"]["stop"] for result in results] == ["wallclock", "replayed"]
    assert results[0]["metrics"]["train/steps"] == results[1]["metrics"]["train/steps"] > 0
    digests = [hashlib.sha256((folder / ARTIFACT).read_bytes()).hexdigest() for folder in (first, again)]
    assert digests == [result["artifact_sha256"] for result in results]
    assert digests[0] == digests[1]
    assert (first / "clock.json").read_bytes() == (again / "clock.json").read_bytes()


def test_another_pace_is_another_run(golfray, clocked, first):
    readings = json.loads((first / "clock.json").read_text())["readings_s"]
    (golfray.folder / "faster.json").write_text(json.dumps({"readings_s": [1.5 * reading for reading in readings]}))
    ended = golfray.run("train", "--folder=faster", *clocked, "--clock-trace=faster.json")
    assert ended.code == 0, ended
    faster = result_of(golfray.folder / "faster")
    assert faster["metrics"]["train/steps"] < result_of(first)["metrics"]["train/steps"]
    assert faster["artifact_sha256"] != result_of(first)["artifact_sha256"]


def test_a_wrong_or_too_short_trace_is_refused_before_anything_starts(golfray, clocked, first):
    (golfray.folder / "wrong.json").write_text('{"seconds": 3}')
    ends = golfray.run_all(
        {
            "wrong.json": ["train", "--folder=refused", *clocked, "--clock-trace=wrong.json"],
            "first/clock.json": [
                *("train", "--folder=refused", "--clock-trace=first/clock.json"),
                *(option for option in clocked if not option.startswith("--set=stop.seconds")),
                "--set=stop.seconds=60",
            ],
        }
    )
    assert [ended.code for ended in ends.values()] == [2, 2]
    assert ends["wrong.json"].one_line() == (
        "golfray: wrong.json: has no readings_s, seconds from 0 up; give the clock.json of a run"
    )
    assert ends["first/clock.json"].one_line().startswith("golfray: first/clock.json: ends after ")
    assert ", before stop.seconds=60; give the settings of the run" in ends["first/clock.json"].err
    assert not (golfray.folder / "refused").exists()
