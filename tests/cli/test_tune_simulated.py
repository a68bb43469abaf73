"""``tune --executor sim``: the whole command without Ray and without torch, and never mistaken for a real study."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.cli.conftest import environment_in
from tests.cli.documented import read_tables

SPACE = pathlib.Path(__file__).parents[2] / "search_spaces" / "muon.yaml"
FEW = ["--set=runtime.log_points=2"]

# What a person's machine may lack, or what takes seconds to load.
PROGRAM = """
import sys
for name in ("ray", "torch"):
    sys.modules[name] = None
from golfray.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def study(golfray):
    """A simulated study of the shipped space: its folder, and how the command ended."""
    folder = golfray.folder / "studies" / "muon"
    return folder, golfray.run("tune", SPACE, "--executor=sim", "--sim", "lanes=2", "--sim=crash=0.1", *FEW)


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_it_ends_as_a_study_does_and_says_what_it_is(study):
    folder, ended = study
    assert (ended.code, ended.err) == (0, ""), ended
    lines = ended.out.splitlines()
    assert lines[0].startswith("SIMULATED: no model was trained")
    assert "parameter-golf at scale full (auto: a simulated machine has GPUs)" in lines[1]
    assert sum("SIMULATED" in line for line in lines) == 3  # at the start, with the lanes, beside the scores
    assert "best feasible: t0" in ended.out
    assert "budget spent: 12 trials" in ended.out
    assert "MLflow is behind" not in ended.out
    header = events(folder)[0]
    assert header["simulation"]["lanes"] == header["slots"] == 2
    assert header["data"]["warning"].startswith("SIMULATED")
    assert (folder / "mlflow.db").stat().st_size > 0


@pytest.mark.slow
def test_status_and_its_document_say_so_too(golfray, study):
    folder, _ = study
    said = golfray.run("status", folder).out
    assert "SIMULATED: no model was trained" in said
    document = json.loads(golfray.run("status", folder, "--json", "-q").out)
    assert document["simulation"] == events(folder)[0]["simulation"]
    assert read_tables().mistakes(document) == []


@pytest.mark.slow
def test_it_takes_neither_ray_nor_torch(golfray):
    """In a process of its own, which has loaded neither."""
    command = [sys.executable, "-c", PROGRAM, "tune", str(SPACE), "--executor=sim", "--study-dir=bare", *FEW]
    where = {"cwd": golfray.folder, "env": environment_in(golfray.home)}
    done = subprocess.run(command, **where, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "best feasible: t0" in done.stdout


@pytest.mark.slow
def test_neither_resumes_as_the_other_nor_on_another_machine(golfray, study):
    folder, _ = study
    real = golfray.run("tune", "--resume", folder)
    assert real.code == 2
    assert "is a simulated study, which no trained trial may join" in real.one_line()
    assert f"golfray tune --resume {folder} --executor sim" in real.one_line()
    other = golfray.run("tune", "--resume", folder, "--executor=sim", "--sim=lanes=3", "--sim=crash=0.1")
    assert other.code == 2
    assert "simulation.lanes: 2 -> 3" in other.err
    same = golfray.run("tune", "--resume", folder, "--executor=sim")
    assert (same.code, same.err) == (0, "")
    assert "nothing is left to run: budget spent: 12 trials" in same.out
    log = folder.parent / "was-real" / "events.jsonl"
    log.parent.mkdir()
    header = {**events(folder)[0], "simulation": None}
    log.write_text(json.dumps(header) + "\n")
    joined = golfray.run("tune", "--resume", log.parent, "--executor=sim")
    assert joined.code == 2
    assert "is a real study, which no simulated trial may join" in joined.one_line()


@pytest.mark.slow
def test_a_larger_budget_goes_on_in_the_same_machine(golfray, study):
    folder, _ = study
    text = SPACE.read_text().replace("trials: 12 ", "trials: 14 ")
    (golfray.folder / "more.yaml").write_text(text)
    more = ["tune", "more.yaml", "--resume", folder, "--executor=sim", *FEW]
    assert golfray.run(*more).code == 2
    ended = golfray.run(*more, "--allow-changes")
    assert (ended.code, ended.err) == (0, ""), ended
    assert "budget spent: 14 trials" in ended.out
    log = events(folder)
    assert [event["time"] for event in log] == sorted(event["time"] for event in log)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sim=lanes=2"], "--sim means something with --executor sim only"),
        (["--executor=sim", "--dry-run"], "leave --executor sim out"),
        (["--executor=sim", "--sim=lanes=none"], "--sim lanes=none: must be a whole number"),
        (["--executor=magic"], "is not one of 'ray', 'sim'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(golfray, arguments, message):
    ended = golfray.run("tune", SPACE, "--study-dir=never", *arguments)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())
    assert not (golfray.folder / "never" / "events.jsonl").exists()
