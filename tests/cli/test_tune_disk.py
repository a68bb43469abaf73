"""The disk under a study's artifacts is full, or may only be read: reasons, exit codes, and a study that can go on."""

import json

import pytest

pytestmark = pytest.mark.slow


def ended_attempts(study) -> list[dict]:
    records = [json.loads(line) for line in (study / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert records[-1]["event"] == "study_ended"
    return [record for record in records if record["event"] == "attempt_ended"]


def test_no_room_for_artifacts_then_room(golfray, write_space, mount):
    """Three attempts that cannot write end the study; with room, the same trials run and are scored."""
    space = write_space(golfray.folder / "full.yaml", budget={"trials": 2}, replicates=1)
    study = golfray.folder / "studies" / "full"
    trials = study / "trials"
    trials.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", "size=128k", "tmpfs", trials)
    started = golfray.start("tune", space)
    ended = started.end()
    assert ended.code == 6, ended
    outcomes = [attempt["outcome"] for attempt in ended_attempts(study)]
    assert [outcome["kind"] for outcome in outcomes] == ["crashed"] * 3
    assert all("No space left on device" in outcome["reason"] for outcome in outcomes)
    assert "all of the first 3 attempts crashed" in ended.out
    assert "golfray tune --resume" in ended.out
    assert started.left_processes() == []

    mount("-o", "remount,size=64m", trials)
    resumed = golfray.run("tune", f"--resume={study}")
    assert resumed.code == 0, resumed
    after = [attempt["outcome"]["kind"] for attempt in ended_attempts(study)][3:]
    assert sorted(after) in (["scored", "scored"], ["infeasible", "scored"])


def test_artifacts_on_a_disk_that_may_only_be_read(golfray, write_space, mount):
    """Nothing can be trained into such a folder, and no training is paid to find out."""
    space = write_space(golfray.folder / "fixed.yaml", budget={"trials": 2}, replicates=1)
    study = golfray.folder / "studies" / "fixed"
    trials = study / "trials"
    trials.mkdir(parents=True)
    mount("-t", "tmpfs", "tmpfs", trials)
    mount("-o", "remount,ro", trials)
    started = golfray.start("tune", space)
    ended = started.end()
    assert ended.code == 4, ended
    line = ended.one_line()
    assert str(trials) in line
    assert "Read-only file system" in line
    assert ended_attempts(study) == []
    assert started.left_processes() == []
