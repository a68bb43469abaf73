"""A study's disk is full, may only be read, or becomes so: reasons, exit codes, and a study that can go on."""

import json
import os
import shutil
import subprocess

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
    resumed = golfray.start("tune", f"--resume={study}").end()
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


class Disk:
    """A small real disk of its own in a file, which can be filled and which the kernel can make read-only under us."""

    def __init__(self, mount, image, folder, megabytes):
        self._image, self._folder = image, folder
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("no mkfs.ext4 here to make a small disk with")
        image.write_bytes(b"")
        os.truncate(image, megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        mount("-o", "loop", image, folder)

    def fill(self):
        """To the last byte."""
        with (self._folder / "ballast").open("wb", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue  # no room for so much

    def free(self):
        (self._folder / "ballast").unlink()

    def fail(self):
        """What the kernel does of itself where such a disk has an error: nothing is written any more."""
        subprocess.run(["mount", "-o", "remount,abort", self._folder], check=True)

    def repair(self):
        subprocess.run(["umount", self._folder], check=True)
        subprocess.run(["mount", "-o", "loop", self._image, self._folder], check=True)


def test_disks_that_fill_up_and_turn_read_only_while_a_trial_runs(golfray, write_space, mount, wait, tmp_path):
    """The log's disk, twice, then the artifacts' one; each time the study ends in good order and goes on afterwards."""
    steps = {"stop.steps": 400, "runtime.log_points": 400}
    space = write_space(golfray.folder / "unlucky.yaml", fixed=steps, budget={"trials": 1}, replicates=1)
    studies = golfray.folder / "studies" / "on-its-own-disk"
    studies.parent.mkdir(exist_ok=True)
    log_disk = Disk(mount, tmp_path / "log.img", studies, 64)
    study = studies / "unlucky"
    trials = study / "trials"
    trials.mkdir(parents=True)
    trial_disk = Disk(mount, tmp_path / "trials.img", trials, 32)

    def progress_of(attempt):
        log = study / "events.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return any(event["event"] == "progress" and event["attempt"] == attempt for event in events)

    def end_after(started, attempt, fault):
        wait(lambda: progress_of(attempt) or started.process.poll() is not None, 300)
        assert progress_of(attempt), started.end()
        fault()
        ended = started.end()
        assert ended.code == 4, ended
        *before, line = ended.err.splitlines()
        assert all(other.startswith("Ray's logs could not be kept in ") for other in before), ended
        assert started.left_processes() == []
        return line

    def ends():
        lines = (study / "events.jsonl").read_text(encoding="utf-8").splitlines()
        attempts = [event for event in map(json.loads, lines) if event["event"] == "attempt_ended"]
        return [(attempt["attempt"], attempt["outcome"]["kind"]) for attempt in attempts]

    line = end_after(golfray.start("tune", space, f"--study-dir={study}"), 1, log_disk.fill)
    assert line.startswith(f"golfray: {study / 'events.jsonl'}: ")
    assert "No space left on device" in line
    assert f"golfray tune --resume {study}" in line
    assert ends() == []
    log_disk.free()

    line = end_after(golfray.start("tune", f"--resume={study}"), 2, log_disk.fail)
    assert line.startswith(f"golfray: {study / 'events.jsonl'}: ")
    assert "Read-only file system" in line
    assert ends() == [(1, "preempted")]
    subprocess.run(["umount", trials], check=True)
    log_disk.repair()
    subprocess.run(["mount", "-o", "loop", tmp_path / "trials.img", trials], check=True)

    line = end_after(golfray.start("tune", f"--resume={study}"), 3, trial_disk.fail)
    assert line == f"golfray: {trials / '0000' / 'attempt-4'}: cannot be made: Read-only file system"
    assert ends() == [(1, "preempted"), (2, "preempted"), (3, "crashed")]
    assert "Read-only file system" in (study / "events.jsonl").read_text(encoding="utf-8")
    trial_disk.repair()

    started = golfray.start("tune", f"--resume={study}")
    ended = started.end()
    assert (ended.code, ended.err) == (0, ""), ended
    assert ends()[3:] == [(4, "scored")]
    assert started.left_processes() == []
