"""A study is brought home from another machine over a real ssh, whole, and never over what is newer at home."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from golfray.cluster.far_folder import CannotPull, FarFolder, NotThere, check_programs, far_folder
from golfray.cluster.pull import Pull
from golfray.config.errors import ConfigError
from golfray.sweep.events import EventLogError, StudyLocked
from golfray.sweep.records import StudyRecord
from golfray.sweep.study_folder import PULL, TUNE, StudyFolderError, no_driver_in, only_driver_of
from tests.far_machine import far_machine
from tests.report.scripted import plain_study
from tests.report.with_artifacts import FarStudy, found

ROOT = pathlib.Path(__file__).parents[2]
RUN_AGAIN = ROOT / "tests" / "report" / "run_again.py"
WAIT_S = 120.0


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with far_machine(tmp_path_factory.mktemp("far")) as running:
        yield running


@pytest.fixture
def far(machine, request):
    """A study on the other machine, of which nothing is written yet."""
    return FarStudy.of(plain_study(), machine.home / request.node.name / "muon")


@pytest.fixture
def pull(machine, far, tmp_path):
    """Brings it home, to ``pull.folder``."""
    path = str(far.folder.relative_to(machine.home))
    return Pull(FarFolder(machine.name, path, machine.shell), tmp_path / "studies" / "muon", ("/mlflow.db*",))


def test_all_that_the_log_names_comes_and_what_is_that_machines_own_stays(far, tmp_path, machine):
    far.write().leave()
    source = FarFolder(machine.name, f"~/{far.folder.relative_to(machine.home)}", machine.shell)
    pulled = Pull(source, tmp_path / "muon", ("/mlflow.db*", "/mlartifacts/")).once()
    there = far.there()
    assert found(tmp_path / "muon") == there
    log = there.pop("events.jsonl")
    assert (pulled.records, pulled.new_records) == (log.count(b"\n"), log.count(b"\n"))
    assert (pulled.files, pulled.size) == (len(there), sum(map(len, there.values())))
    assert (pulled.artifacts, pulled.lacking) == (10, [])
    assert pulled.record.complete


def test_again_only_what_is_new_comes(far, pull):
    some = len(far.lines) // 2
    far.write(some, torn=20)
    first = pull.once()
    assert (first.records, first.record.end_reason) == (some, None)
    # Half a record is none, and the home log has whole ones.
    assert (pull.folder / "events.jsonl").read_bytes() == b"".join(far.lines[:some])
    assert pull.once() is None
    far.write()
    second = pull.once()
    assert (second.new_records, second.records) == (len(far.lines) - some, len(far.lines))
    assert second.files == sum(map(len, far.files[some:])) > 0
    assert first.files + second.files == sum(map(len, far.files))
    assert found(pull.folder) == far.there()


@pytest.mark.slow
def test_while_it_runs_every_copy_is_whole(far, pull, machine):
    """Whenever one looks, the log at home reads, and all that it names is there once a pull has ended."""
    whole = far.write().folder
    running = machine.home / "running" / "muon"
    with subprocess.Popen([sys.executable, RUN_AGAIN, whole, running, "0.02"]) as driver:
        deadline = time.monotonic() + WAIT_S
        pull.source = dataclasses.replace(pull.source, path="running/muon")
        came = []
        while not came or came[-1].record.end_reason is None:
            assert time.monotonic() < deadline
            # Before its first record there is nothing to bring.
            with contextlib.suppress(ConfigError):
                pulled = pull.once()
                came += [] if pulled is None else [pulled]
                assert StudyRecord.load(pull.folder).last_event == came[-1].record.last_event
        assert driver.wait() == 0
    assert [pulled.lacking for pulled in came] == [[]] * len(came)
    assert len(came) > 1
    assert found(pull.folder) == far.there()


def test_what_the_log_names_and_is_not_there_is_a_finding(far, pull):
    far.write()
    named = [far.folder / name for files in far.files for name in files if name.endswith(".ptz")]
    gone, short, other, *_whole = named
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    other.write_bytes(bytes(len(other.read_bytes())))
    pulled = pull.once()
    assert [(finding.code, pathlib.Path(finding.where).parent.parent.name) for finding in pulled.lacking] == [
        ("artifact_missing", gone.parent.parent.name),
        ("artifact_size", short.parent.parent.name),
        ("artifact_content", other.parent.parent.name),
    ]
    assert pulled.artifacts == 10


@pytest.mark.parametrize(
    ("home", "says"),
    [
        ("longer", "its log goes on where that of pod:"),
        ("another", "from line 4 on"),
    ],
)
def test_what_is_newer_or_another_study_at_home_is_left(far, pull, home, says):
    lines = far.lines[:-1] + [far.lines[-1], b'{"more":1}\n'] if home == "longer" else [*far.lines[:3], far.lines[4]]
    pull.folder.mkdir(parents=True)
    (pull.folder / "events.jsonl").write_bytes(b"".join(lines))
    far.write()
    before = found(pull.folder)
    with pytest.raises(ConfigError, match=says) as refused:
        pull.once()
    assert "nothing was changed" in str(refused.value)
    assert found(pull.folder) == before


def test_half_a_record_at_home_that_the_other_has_whole_is_completed(far, pull):
    pull.folder.mkdir(parents=True)
    (pull.folder / "events.jsonl").write_bytes(b"".join(far.lines[:5]) + far.lines[5][:30])
    far.write()
    assert pull.once().new_records == len(far.lines) - 5
    assert found(pull.folder) == far.there()


def test_a_file_that_was_changed_at_home_is_left(far, pull):
    far.write(20)
    (far.folder / "notes.txt").write_text("there")
    pull.once()
    mine = pull.folder / "notes.txt"
    mine.write_text("at home")
    os.utime(mine, (time.time() + 60, time.time() + 60))
    far.write()
    pull.once()
    assert mine.read_text() == "at home"


def test_nothing_is_brought_into_a_folder_of_something_else(far, pull):
    pull.folder.mkdir(parents=True)
    (pull.folder / "thesis.tex").write_text("mine")
    far.write()
    with pytest.raises(ConfigError, match=r"holds something that is no study \(thesis.tex\)"):
        pull.once()
    assert found(pull.folder) == {"thesis.tex": b"mine"}


@pytest.mark.parametrize(("holder", "verb"), [(only_driver_of, TUNE), (no_driver_in, PULL), (no_driver_in, "track")])
def test_while_golfray_is_at_work_at_home_nothing_is_changed(far, pull, holder, verb):
    far.write(20)
    pull.once()
    far.write()
    with holder(pull.folder, verb), pytest.raises(StudyLocked, match=f"`golfray {verb}`"):
        pull.once()
    assert (pull.folder / "events.jsonl").read_bytes() == b"".join(far.lines[:20])


def test_a_damaged_log_there_takes_no_log_from_home(far, pull):
    far.write(20)
    pull.once()
    before = found(pull.folder)
    (far.folder / "events.jsonl").write_bytes(b"".join([*far.lines[:20], b"{}\n", *far.lines[20:]]))
    with pytest.raises(EventLogError, match=r"pod:\S+/events.jsonl:21: "):
        pull.once()
    assert found(pull.folder) == before


def test_a_folder_that_is_not_there_leaves_none_at_home(pull, far, machine):
    far.folder.rmdir()
    with pytest.raises(NotThere, match="no such folder"):
        pull.once()
    assert not pull.folder.exists()
    for name in ("one", "two"):
        (far.folder.parent / name).mkdir()
        (far.folder.parent / name / "events.jsonl").touch()
    # A folder with studies, and no study's.
    pull.source = dataclasses.replace(pull.source, path=str(far.folder.parent.relative_to(machine.home)))
    with pytest.raises(NotThere, match="it has the studies one, two: name one"):
        pull.once()


def test_a_study_that_has_only_begun_is_not_brought(far, pull):
    far.write(0, torn=10)
    with pytest.raises(ConfigError, match="is only starting"):
        pull.once()
    assert not pull.folder.exists()


def test_the_study_written_last_comes_first(machine):
    for age, name in enumerate(("b", "a study", "c")):
        folder = machine.home / "listed" / name
        folder.mkdir(parents=True)
        (folder / "events.jsonl").touch()
        os.utime(folder / "events.jsonl", (time.time() - 10 * age, time.time() - 10 * age))
    (machine.home / "listed" / "none").mkdir()
    listed = FarFolder(machine.name, "listed", machine.shell)
    assert listed.folders_with("events.jsonl") == ["b", "a study", "c"]
    assert FarFolder(machine.name, "~/listed", machine.shell).folders_with("absent") == []


def fill(folder, megabytes):
    """A file that takes a while, the last one by name."""
    (folder / "zz").mkdir(parents=True)
    content = os.urandom(megabytes * 1_000_000)
    (folder / "zz" / "checkpoint.pt").write_bytes(content)
    return content


def wait_until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def slow(machine):
    machine.slow_down(700)
    yield
    with contextlib.suppress(FileNotFoundError):
        machine.slow_down(None)


@pytest.mark.slow
def test_a_connection_that_is_cut_costs_nothing_that_has_come(far, pull, machine, slow):
    content = fill(far.folder, 6)
    far.write()
    failed = []

    def run():
        try:
            pull.once()
        except CannotPull as error:
            failed.append(str(error))

    work = threading.Thread(target=run)
    work.start()
    pulling = pull.folder / ".pulling"
    # All the rest is there: the large one comes last, and some of it has.
    wait_until(lambda: any(path.stat().st_size > 300_000 for path in pulling.glob("*checkpoint*")))
    machine.cut()
    work.join(WAIT_S)
    assert len(failed) == 1
    assert "\n" not in failed[0]
    assert found(pull.folder)["events.jsonl"] == b"".join(far.lines)
    kept = pull.folder / "zz" / ".partly" / "checkpoint.pt"
    assert 0 < kept.stat().st_size < len(content)
    machine.slow_down(None)
    assert pull.once().lacking == []
    assert found(pull.folder) == {**far.there(), "zz/checkpoint.pt": content}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_pull_that_is_ended_in_the_middle_is_gone_on_with(far, pull, machine, slow, how):
    content = fill(far.folder, 6)
    far.write()
    program = (
        "import pathlib, sys\nfrom golfray.cluster.far_folder import FarFolder\nfrom golfray.cluster.pull import Pull\n"
        "Pull(FarFolder(*sys.argv[1:4]), pathlib.Path(sys.argv[4])).once()"
    )
    source = pull.source
    arguments = [source.host, source.path, source.shell, str(pull.folder)]
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    pulling = pull.folder / ".pulling"
    wait_until(lambda: any(path.stat().st_size > 300_000 for path in pulling.glob("*checkpoint*")))
    process.send_signal(how)
    assert process.wait(WAIT_S) != 0
    # What has come is a study already.
    assert StudyRecord.load(pull.folder).complete
    assert "zz/checkpoint.pt" not in found(pull.folder)
    machine.slow_down(None)
    assert pull.once().lacking == []
    assert found(pull.folder) == {**far.there(), "zz/checkpoint.pt": content}


def test_a_disk_that_is_full_at_home(far, pull, mount, tmp_path):
    far.write(20)
    (tmp_path / "small").mkdir()
    mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path / "small")
    full = Pull(pull.source, tmp_path / "small" / "muon")
    assert full.once().lacking == []
    far.write()
    with pytest.raises(CannotPull, match=r"No space left on device.*; what has come stays"):
        full.once()
    assert StudyRecord.load(full.folder).complete


def test_a_folder_that_cannot_be_made(far, pull, tmp_path):
    far.write()
    (tmp_path / "studies").write_text("a file")
    with pytest.raises((ConfigError, StudyFolderError), match="studies/muon: "):
        pull.once()


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("no-such-host.invalid", "Could not resolve hostname"),
        ("nobody@pod", "Permission denied"),
    ],
)
def test_a_machine_that_does_not_let_one_in(machine, tmp_path, host, says):
    shell = machine.shell.replace("ssh ", "ssh -o IdentityFile=none ") if "@" in host else machine.shell
    with pytest.raises(CannotPull, match=says) as refused:
        Pull(FarFolder(host, "muon", shell), tmp_path / "muon").once()
    assert f"does `{shell} {host}` get there?" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "muon").exists()


def test_programs_that_are_not_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotPull, match="rsync is not installed here"):
        check_programs()
    (tmp_path / "rsync").write_text("")
    (tmp_path / "rsync").chmod(0o755)
    with pytest.raises(CannotPull, match="ssh is not installed here"):
        check_programs()


@pytest.mark.parametrize("shell", ["ssh 'half", "ssh \\", " "])
def test_a_shell_that_is_no_command(monkeypatch, shell):
    monkeypatch.setenv("RSYNC_RSH", shell)
    with pytest.raises(ConfigError, match=r"^RSYNC_RSH: is ") as refused:
        check_programs()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "host", "path", "name"),
    [
        ("pod:golfray/studies/muon", "pod", "golfray/studies/muon", "muon"),
        ("root@10.0.0.7:/data/studies/muon-2/", "root@10.0.0.7", "/data/studies/muon-2/", "muon-2"),
        ("me@[fe80::1]:~/muon", "me@[fe80::1]", "~/muon", "muon"),
        ("pod:a:b/my study", "pod", "a:b/my study", "my study"),
        ("pod:", "pod", "", ""),
        ("pod:~", "pod", "~", ""),
        ("pod:studies/..", "pod", "studies/..", ""),
    ],
)
def test_what_names_another_machine(text, host, path, name):
    parsed = far_folder(text)
    assert (parsed.host, parsed.path, parsed.name) == (host, path, name)


@pytest.mark.parametrize("text", ["clusters/local.yaml", "./pod:muon", "studies/a:b", "", ":muon"])
def test_what_names_a_file_here(text):
    assert far_folder(text) is None


@pytest.mark.parametrize("text", ["-oProxyCommand=x:muon", "pod::module/muon", "rsync://pod/muon"])
def test_what_names_neither(text):
    with pytest.raises(ConfigError):
        far_folder(text)
