"""``golfray tune SPACE --dry-run``: what it says, and that it leaves everything as it was."""

import hashlib
import json
import os
import re
import time

import pytest

from tests.cli.conftest import TINY

STEPS = 12


def snapshot(*folders):
    """Every file below with its time of change and what is in it, and every folder.

    Folders without their times: Python itself tries out whether a file can be made in the temporary folder.
    """
    found = {}
    for path in (path for folder in folders for path in [folder, *folder.rglob("*")]):
        status = path.lstat()
        is_file = path.is_file()
        found[path] = (status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) if is_file else status.st_mode
    return found


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """A temporary folder of the command's own, so that all that it leaves there is seen."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("tmp")
        patch.setenv("TMPDIR", str(folder))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield folder


@pytest.fixture(scope="module")
def planned(golfray, golfray_home, write_space, temporary):
    """A dry run with documents, and every file that it might have changed, before and after it."""
    space = write_space(golfray.folder / "small.yaml", first_points=[{"optimizer.matrix_lr": 0.09}])
    folders = golfray.folder, golfray.home, golfray_home, temporary
    before = snapshot(*folders)
    ended = golfray.run("tune", space, "--dry-run", "--json")
    return ended, before, snapshot(*folders)


def test_it_leaves_everything_as_it_was(planned) -> None:
    ended, before, after = planned
    assert ended.code == 0, ended
    assert after == before


def test_standard_output_is_one_document(planned, golfray) -> None:
    ended, _, _ = planned
    (line,) = ended.out.splitlines()
    document = json.loads(line)
    assert (document["schema"], document["kind"], document["study"]) == ("golfray/1", "plan", "small")
    assert document["trials"]["roles"] == ["preset", "preset_8bit", "first_point", "replicate", "sampler", "sampler"]
    assert document["data"]["steps"] == STEPS
    assert not document["fidelity"]["compiled"]
    assert document["time"]["rounds"] == -(-6 // document["lanes"]["count"])
    assert [point["number"] for point in document["points"]] == [0, 1, 2, 3, 4]
    assert document["points"][1]["margin"] < 0 < document["points"][0]["margin"]
    # The lines for a person are there too, out of a program's way.
    assert "dry run: nothing is started and nothing is written" in ended.err.splitlines()


def test_a_corpus_that_is_not_built_is_not_built_for_this(golfray, temporary, tmp_path, monkeypatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("GOLFRAY_HOME", str(home))
    space = {
        "name": "demo",
        "preset": "parameter-golf",
        "scale": "laptop",
        "budget": {"trials": 1},
        "replicates": 1,
        "knobs": {"optimizer.matrix_lr": {"low": 0.01, "high": 0.1}},
        "fixed": {**{name: value for name, value in TINY.items() if name != "model.vocab_size"}, "workers": 1},
    }
    (golfray.folder / "demo.yaml").write_text(json.dumps(space))
    before = snapshot(golfray.folder, golfray.home, temporary)
    ended = golfray.run("tune", "demo.yaml", "--dry-run")
    assert (ended.code, ended.err) == (0, ""), ended
    assert "1,264,581 training tokens of kjv (not built yet: its known counts)" in ended.out
    assert snapshot(golfray.folder, golfray.home, temporary) == before
    assert not home.exists()


@pytest.mark.parametrize("option", [["--dry-run"], []])
def test_minutes_that_hold_no_trial_are_a_budget_error(golfray, write_space, option) -> None:
    fixed = {"stop.steps": None, "stop.seconds": 40.0}
    space = write_space(golfray.folder / "short.yaml", fixed=fixed, budget={"minutes": 0.5})
    ended = golfray.run("tune", space, *option)
    assert ended.code == 3, ended
    assert "budget.minutes is 0.5, which is 30 s" in ended.one_line()
    assert list(golfray.folder.glob("studies/short/*")) == []


def test_a_disk_without_room_for_the_study_is_refused_alike_by_plan_and_study(
    golfray, write_space, tmp_path, mount
) -> None:
    # Only time limits the trials, so how many there may be at most has to be worked out.
    fixed = {"stop.steps": None, "stop.seconds": 15.0}
    space = write_space(golfray.folder / "large.yaml", fixed=fixed, budget={"minutes": 3})
    disk = mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path / "disk")
    command = ["tune", space, "--study-dir", disk / "large"]
    ends = golfray.run_all({"plan": [*command, "--dry-run"], "study": command})
    for ended in ends.values():
        assert ended.code == 4, ended
        assert "this disk has 8.4 MB free" in ended.one_line()
    assert ends["plan"].one_line() == ends["study"].one_line()
    said = re.search(r"^disk: at most (\S+ MB) in", ends["plan"].out, re.MULTILINE)
    assert f"the study needs {said[1]}, " in ends["study"].err
    assert [path for path in disk.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_what_then_runs_is_what_was_planned(planned, golfray, write_space) -> None:
    document = json.loads(planned[0].out)
    ended = golfray.run("tune", "small.yaml")
    assert ended.code == 0, ended
    log = [json.loads(line) for line in (golfray.folder / "studies/small/events.jsonl").read_text().splitlines()]
    (started,) = (record for record in log if record["event"] == "study_started")
    asked = [record for record in log if record["event"] == "trial_asked"]
    totals = {
        record["trial"]: record["outcome"]["metrics"]["bytes/total"]
        for record in log
        if record["event"] == "attempt_ended"
    }
    assert [record["role"] for record in asked] == document["trials"]["roles"]
    assert started["slots"] == document["lanes"]["count"]
    assert started["describe"][: len(document["lanes"]["describe"])] == document["lanes"]["describe"]
    assert started["bytes_code"] == document["bytes_code"]
    for point, record in zip(document["points"], asked, strict=False):
        for path, value in point["params"].items():
            section, _, name = path.partition(".")
            assert record["settings"][section][name] == value
        assert abs(totals[point["number"]] - point["bytes_total"]) <= point["error"]
    written = sum(path.stat().st_size for path in (golfray.folder / "studies/small").rglob("*") if path.is_file())
    assert written <= document["disk"]["study_bytes"]
    # Now that there is such a study, its record is better than any estimate.
    again = golfray.run("tune", "small.yaml", "--dry-run")
    assert f"as in {golfray.folder / 'studies/small'}, a study of the same kind: medians of 6 trials" in again.out
    assert "holds a study already" in again.out


def others_slow_it_down() -> float:
    """How much this machine's last minute was fuller than a study alone makes it; 1 where nobody else is there."""
    return max(1.0, os.getloadavg()[0] / (2 * len(os.sched_getaffinity(0))))


@pytest.mark.slow
def test_a_study_takes_the_time_that_the_record_of_another_foretells(golfray, write_space) -> None:
    # By seconds: what a step takes differs from hour to hour on a shared machine, and the training time does not.
    fixed = {"stop.steps": None, "stop.seconds": 6.0}
    space = write_space(golfray.folder / "timed.yaml", fixed=fixed, budget={"trials": 2}, replicates=1)
    first = golfray.run("tune", space, "--study-dir", "studies/first")
    assert first.code == 0, first
    busy = [others_slow_it_down()]
    planned = golfray.run("tune", space, "--study-dir", "studies/second", "--dry-run", "--json")
    foreseen = json.loads(planned.out)["time"]
    assert foreseen["sources"][0].startswith(f"as in {golfray.folder / 'studies/first'}, ")
    begin = time.monotonic()
    second = golfray.run("tune", space, "--study-dir", "studies/second")
    took = time.monotonic() - begin
    assert second.code == 0, second
    busy.append(others_slow_it_down())
    # 30 % on a machine of one's own; what others do meanwhile nobody foretells.
    low, high = 0.7 / max(busy), 1.3 * max(busy)
    assert low <= foreseen["total_s"] / took <= high, (foreseen, took, busy)
