"""`golfray pull` as a person calls it: what it says, its documents, its exit codes."""

import pathlib
import signal

import pytest

from golfray.sweep.events import encode_record
from golfray.sweep.records import StudyRecord
from tests.cli.test_json import documents_of
from tests.far_machine import far_machine
from tests.report.scripted import plain_study
from tests.report.with_artifacts import FarStudy, found


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with far_machine(tmp_path_factory.mktemp("far")) as running, pytest.MonkeyPatch.context() as patch:
        # As a person names a port and a key without a line of configuration.
        patch.setenv("RSYNC_RSH", running.shell)
        yield running


@pytest.fixture(scope="module")
def far(machine):
    return FarStudy.of(plain_study(), machine.home / "golfray" / "studies" / "muon").write()


@pytest.fixture(scope="module")
def pulled(golfray, far):
    """A whole study, brought home for a person, and once more for a program."""
    first = golfray.run("pull", "pod:golfray/studies/muon")
    return first, golfray.run("pull", "pod:golfray/studies/muon", "--json", "-q")


def test_a_person_is_told_what_came_and_what_to_do_next(pulled, golfray, far):
    assert (pulled[0].code, pulled[0].err) == (0, "")
    assert pulled[0].out.splitlines() == [
        "pod:golfray/studies/muon: looking",
        f"studies/muon: 10 trials, 8 scored, 2 infeasible; came: {len(far.lines)} new records, 20 files (2.9 MB)",
        "artifacts: 10 of 10 are here as the log has them",
        "it has ended there: budget spent: 8 trials",
        "next: golfray status studies/muon; golfray track studies/muon (makes MLflow's store of it again)",
        "next: golfray show trial studies/muon/t006",
    ]
    assert found(golfray.folder / "studies" / "muon") == far.there()


def test_a_program_gets_a_document(pulled, far):
    assert pulled[1].code == 0
    (document,) = documents_of(pulled[1].out)
    assert document["kind"] == "pull"
    assert (document["records"], document["new_records"], document["files"]) == (len(far.lines), 0, 0)
    assert (document["artifacts"], document["findings"]) == (10, [])
    assert document["ended"] is True


def test_the_verbs_for_studies_know_it(pulled, golfray):
    assert golfray.run("status", "muon").out.startswith("study muon in studies/muon: ended")


def test_what_is_missing_is_said_and_ends_with_4(golfray, machine):
    broken = FarStudy.of(plain_study(), machine.home / "broken").write()
    gone = next(name for files in broken.files for name in files if name.endswith(".ptz"))
    (broken.folder / gone).unlink()
    ended = golfray.run("pull", f"pod:{broken.folder}", "--json")
    (document,) = documents_of(ended.out)
    assert ended.code == 4
    assert [finding["where"] for finding in document["findings"]] == [f"studies/broken/{gone}"]
    assert f"MISS studies/broken/{gone}: is in the log, and not in the folder" in ended.err
    assert "artifacts: 9 of 10 are here" in ended.err


def test_a_study_that_was_gone_on_with_at_home_is_left(golfray, far):
    golfray.run("pull", "pod:golfray/studies/muon", "--study-dir=mine")
    log = golfray.folder / "mine" / "events.jsonl"
    with log.open("ab") as file:
        file.write(encode_record({"seq": len(far.lines), "time": 2e9, "event": "later"}).encode() + b"\n")
    before = log.read_bytes()
    ended = golfray.run("pull", "pod:golfray/studies/muon", "--study-dir", "mine")
    assert ended.code == 2
    assert ended.one_line().startswith("golfray: mine: its log goes on where that of pod:golfray/studies/muon ends")
    assert log.read_bytes() == before


NO_CLUSTER = "golfray: fixed.yaml: is no cluster file (cluster_name, provider and auth are its entries); name one, or"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pod:golfray/studies/mun"], 2, "golfray: pod:golfray/studies/mun: there is no such folder"),
        (["pod:golfray/studies"], 2, "golfray: pod:golfray/studies: no study there (events.jsonl is missing); it has"),
        (["no-such-host.invalid:muon"], 4, "golfray: no-such-host.invalid:muon: ssh: Could not resolve hostname"),
        (["pod:"], 2, "golfray: pod:: names no study's folder"),
        (["rsync://pod/muon"], 2, "golfray: rsync://pod/muon: golfray pulls over ssh: write [USER@]HOST:PATH"),
        (["absent.yaml"], 2, "golfray: absent.yaml: is neither [USER@]HOST:PATH nor a cluster file that is here"),
        (["fixed.yaml"], 2, NO_CLUSTER),
        (["docker.yaml"], 2, "golfray: docker.yaml docker.container_name: runs golfray in a container"),
    ],
)
def test_what_cannot_be_pulled_is_one_message(golfray, far, arguments, code, says):
    (golfray.folder / "fixed.yaml").write_text("fixed: {cap_bytes: 1}\n")
    cluster = "{cluster_name: a, provider: {type: aws}, auth: {ssh_user: b}, docker: {container_name: c}}\n"
    (golfray.folder / "docker.yaml").write_text(cluster)
    ended = golfray.run("pull", *arguments, "-q")
    assert (ended.code, ended.out) == (code, "")
    assert ended.one_line().startswith(says)
    assert "mun" not in {path.name for path in (golfray.folder / "studies").glob("*")}


def test_a_study_is_named_once(golfray):
    ended = golfray.run("pull", "pod:golfray/studies/muon", "muon")
    assert ended.code == 2
    assert "names the study's folder already" in ended.err


@pytest.mark.slow
def test_follow_pulls_until_the_study_has_ended(golfray, machine, wait, monkeypatch):
    growing = FarStudy.of(plain_study(), machine.home / "growing").write(20, torn=9)
    started = golfray.start("pull", "--follow", "pod:growing")
    started.wait_for_line("it has not ended there")
    home = golfray.folder / "studies" / "growing"
    assert (home / "events.jsonl").read_bytes() == b"".join(growing.lines[:20])
    growing.write()
    ended = started.end()
    assert ended.code == 0
    assert "it has ended there: budget spent: 8 trials" in ended.out
    assert found(home) == growing.there()


@pytest.mark.slow
def test_ctrl_c_says_that_what_has_come_stays(golfray, machine):
    growing = FarStudy.of(plain_study(), machine.home / "waiting").write(20)
    started = golfray.start("pull", "--follow", "pod:waiting")
    started.wait_for_line("next: golfray status")
    started.process.send_signal(signal.SIGINT)
    ended = started.end()
    assert ended.code == 130
    assert ended.err == "golfray: interrupted\n"
    assert "studies/waiting: what has come stays, and the same command goes on from it" in ended.out
    assert not StudyRecord.load(golfray.folder / "studies" / "waiting").complete
    assert started.left_processes() == []
    assert len(growing.lines) > 20


@pytest.mark.slow
def test_a_study_that_the_simulator_ran_goes_on_at_home(golfray, machine):
    """A real log from another machine, cut where that machine died, is resumed here and then left alone."""
    space = pathlib.Path(__file__).parents[2] / "search_spaces" / "muon.yaml"
    folder = machine.home / "simulated"
    assert golfray.run("tune", space, "--executor=sim", f"--study-dir={folder}", "-q").code == 0
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "events.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]) + b'{"seq":')
    pulled = golfray.run("pull", "pod:simulated")
    assert pulled.code == 0, pulled
    assert golfray.run("tune", "--resume=studies/simulated", "--executor=sim", "-q").code == 0
    assert StudyRecord.load(golfray.folder / "studies" / "simulated").complete
    again = golfray.run("pull", "pod:simulated", "-q")
    assert (again.code, again.out) == (2, "")
    assert "nothing was changed" in again.one_line()
