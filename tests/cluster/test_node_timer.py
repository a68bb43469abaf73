"""A node's timer: who puts it off, what it does when nobody does, and what it needs for that."""

import ast
import dataclasses
import json
import math
import resource
import signal
import sys

import pytest

from golfray.cluster import heartbeat, node_timer
from tests.cluster.node_timers import MODULE, Timer


@pytest.fixture
def timer(tmp_path, monkeypatch):
    timer = Timer(tmp_path / "timer")
    monkeypatch.setenv(node_timer.FOLDER_VARIABLE, str(timer.folder))
    yield timer
    timer.end()


@pytest.fixture
def at_noon(monkeypatch):
    """The node's clock stands at 1,000 s."""
    monkeypatch.setattr(node_timer, "clock", lambda: 1000.0)


def test_it_needs_nothing_that_is_not_there_at_boot():
    tree = ast.parse(MODULE.read_text(), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_node_that_no_study_ever_reaches_goes_off(timer):
    assert "this node goes off in" in timer.arm(boot=0.001)
    assert timer.wait_until_off() == "shutdown -P now"
    assert "no study has begun: shutdown -P now" in timer.log


def test_a_study_over_its_budget_is_not_waited_for(timer):
    timer.arm(boot=60)
    assert node_timer.renew(0.0) == node_timer.ARMED
    assert timer.wait_until_off() == "shutdown -P now"
    assert "the budget is spent: shutdown -P now" in timer.log


def test_a_second_boot_command_gives_a_new_lease_and_starts_no_second_timer(timer):
    timer.arm(boot=60)
    (pid,) = timer.pids
    timer.arm(boot=120, silent=7)
    assert timer.pids == [pid]
    assert timer.lease["silent_s"] == 420


@pytest.mark.parametrize(
    ("sign", "until", "why"),
    [
        (node_timer.renew, 1300.0, "no study has given a sign"),
        (lambda: node_timer.renew(5000.0), 1300.0, "no study has given a sign"),
        (lambda: node_timer.renew(40.0), 1040.0, "the budget is spent"),
        (node_timer.study_done, 1120.0, "the study is done"),
        (lambda: node_timer.keep(86400.0), 87400.0, "the time that a person asked for is over"),
    ],
    ids=["silent", "rich", "over budget", "done", "kept"],
)
def test_what_each_sign_allows(timer, at_noon, sign, until, why):
    timer.arm(boot=60, silent=5, done=2)
    assert sign() == node_timer.ARMED
    assert (timer.lease["until"], timer.lease["why"]) == (until, why)


def test_without_a_timer_there_is_nothing_to_renew(timer):
    assert [node_timer.renew(), node_timer.study_done(), node_timer.keep(60.0)] == [node_timer.ABSENT] * 3
    assert not timer.folder.exists()
    assert timer.run("show").stdout == "this node has no timer\n"


def test_a_timer_that_was_killed_is_told_of(timer):
    timer.arm(boot=60)
    timer.end()
    assert node_timer.renew() == node_timer.DEAD
    kept = timer.run("keep", 30)
    assert (kept.returncode, kept.stderr) == (1, "node_timer.py: the timer of this node has ended; arm it again\n")
    timer.arm(boot=60)
    assert node_timer.renew() == node_timer.ARMED


def test_a_lease_that_cannot_be_read_keeps_no_node_on(timer, at_noon, monkeypatch, capsys):
    timer.folder.mkdir(mode=0o700)
    node_timer._write(timer.folder, node_timer.Lease(2000.0, "no study has begun", 1.0, 1.0, "true"))

    def half_written(seconds):
        (timer.folder / "lease.json").write_text("{")
        monkeypatch.setattr(node_timer, "clock", lambda: 2000.0)

    monkeypatch.setattr(node_timer.time, "sleep", half_written)
    node_timer.watch()
    said = capsys.readouterr().out.splitlines()
    assert "lease.json is no lease (" in said[0]
    assert said[1].endswith("no study has begun: true")


def test_a_command_that_fails_is_tried_again(timer, monkeypatch, capsys):
    timer.folder.mkdir(mode=0o700)
    once = f"mkdir {timer.folder}/tried && exit 3 || rmdir {timer.folder}/tried"
    node_timer._write(timer.folder, node_timer.Lease(0.0, "the study is done", 1.0, 1.0, once))
    slept = []
    monkeypatch.setattr(node_timer.time, "sleep", slept.append)
    node_timer.watch()
    assert slept == [60.0]
    assert "that ended with exit code 3; it is tried again in 60 s" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["shared", "link", "file"])
def test_a_folder_that_others_could_write_to_is_refused(timer, tmp_path, spoil):
    if spoil == "shared":
        timer.folder.mkdir()
        timer.folder.chmod(0o777)
    elif spoil == "link":
        timer.folder.symlink_to(tmp_path)
    else:
        timer.folder.write_text("")
    done = timer.run("arm", "--command=true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"node_timer.py: {timer.folder}")
    assert timer.pids == []


@pytest.mark.parametrize("minutes", ["0", "-1", "inf", "nan", "soon"])
def test_minutes_are_a_finite_number_above_0(timer, minutes):
    done = timer.run("keep", minutes)
    assert done.returncode == 2
    assert "minutes" in done.stderr


class TestHeartbeat:
    """On the study's own machine; on the nodes of a cluster: test_foreign_cluster.py."""

    def test_it_renews_the_timer_of_this_machine(self, timer):
        timer.arm(boot=60)
        beats = heartbeat.Heartbeat(local=True)
        beats.beat()
        assert timer.lease["why"] == "no study has given a sign"
        beats.done()
        assert timer.lease["why"] == "the study is done"

    def test_it_beats_once_a_minute(self, timer, monkeypatch):
        timer.arm(boot=60)
        now = [100.0]
        monkeypatch.setattr(node_timer, "clock", lambda: now[0])
        renewed = []
        monkeypatch.setattr(node_timer, "renew", lambda left_s: renewed.append(left_s) or node_timer.ARMED)
        beats = heartbeat.Heartbeat(local=True)
        for now[0] in (100.0, 159.0, 160.0):
            beats.beat()
        assert renewed == [math.inf] * 2

    def test_the_end_of_the_budget_and_of_closing_is_the_end_of_the_node(self, timer, monkeypatch):
        timer.arm(boot=60, silent=15)
        monkeypatch.setattr(heartbeat.time, "time", lambda: 10_000.0)
        monkeypatch.setattr(node_timer, "clock", lambda: 0.0)
        beats = heartbeat.Heartbeat(local=True)
        beats.hold_until = 10_030.0
        beats.beat()
        assert (timer.lease["until"], timer.lease["why"]) == (120.0, "the budget is spent")

    def test_what_is_wrong_with_the_timer_does_not_end_the_study(self, timer, caplog):
        timer.arm(boot=60)
        beats = heartbeat.Heartbeat(local=True)
        (line,) = beats.describe()
        assert line == (
            "this node goes off 15 minutes after the study's last sign, and 15 after its end: shutdown -P now"
        )
        (timer.folder / "lease.json").write_text(json.dumps({"until": 1}))
        beats.beat()
        assert "this node could not renew its timer: " in caplog.text
        assert beats.describe()[0].startswith("this node's timer is of no use: ")


def test_minutes_whose_seconds_are_beyond_all_numbers_are_refused(timer):
    done = timer.run("arm", "--command=shutdown -P now", "--boot=1e308")
    assert done.returncode == 2
    assert "finite number of minutes above 0, got 1e308" in done.stderr
    assert timer.pids == []


def test_a_command_that_shuts_nothing_down_is_refused(timer):
    for command in ("", "  "):
        done = timer.run("arm", f"--command={command}")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("node_timer.py: an empty command shuts no node down")
    assert timer.pids == []


def test_a_folder_that_every_process_would_find_elsewhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(node_timer.FOLDER_VARIABLE, "timer")
    for call in (node_timer.current, node_timer.renew, lambda: node_timer.arm("true", 60, 60, 60)):
        with pytest.raises(node_timer.TimerError, match="must be a folder from the root, got timer"):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["until", "why", "silent_s", "done_s", "command"])
@pytest.mark.parametrize("value", [None, [], True, math.nan, math.inf])
def test_a_lease_with_a_value_that_is_none_is_no_lease(tmp_path, monkeypatch, field, value):
    monkeypatch.setenv(node_timer.FOLDER_VARIABLE, str(tmp_path))
    tmp_path.chmod(0o700)
    lease = {"until": 1.0, "why": "", "silent_s": 1.0, "done_s": 1.0, "command": "true", field: value}
    (tmp_path / "lease.json").write_text(json.dumps(lease))
    for call in (node_timer.current, node_timer.renew, node_timer.study_done, node_timer.watch):
        with pytest.raises(node_timer.TimerError, match=f"is no lease .{field} must be"):
            call()


@pytest.mark.parametrize("call", [node_timer.renew, node_timer.study_done, lambda: node_timer.arm("true", 60, 60, 60)])
def test_a_disk_without_room_is_told_and_left_as_it_was(tmp_path, monkeypatch, call):
    monkeypatch.setenv(node_timer.FOLDER_VARIABLE, str(tmp_path))
    tmp_path.chmod(0o700)
    lease = node_timer.Lease(1.0, "", 1.0, 1.0, "true")
    (tmp_path / "lease.json").write_text(json.dumps(dataclasses.asdict(lease)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel refuses every byte that is written to a file, as it does on a full disk.
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(node_timer.TimerError, match="make room there, or name another folder"):
            call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [path.name for path in tmp_path.iterdir()] == ["lease.json"]
    assert node_timer.current() == lease


def test_a_lock_that_is_none_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(node_timer.FOLDER_VARIABLE, str(tmp_path))
    tmp_path.chmod(0o700)
    (tmp_path / "lock").mkdir()
    with pytest.raises(node_timer.TimerError, match=r"/lock: Is a directory"):
        node_timer.arm("true", 60, 60, 60)
    with pytest.raises(node_timer.TimerError, match=r"/lock: Is a directory"):
        node_timer.renew()


def test_a_lease_that_is_renewed_after_a_shutdown_failed_keeps_the_node_on(timer, monkeypatch):
    tried = timer.folder.with_name("tried")
    timer.folder.mkdir(mode=0o700)
    # The first try fails, and while it runs a study comes.
    command = f"echo >> {tried}; test $(wc -l < {tried}) = 2"
    lease = node_timer.Lease(0.0, "no study has begun", 5.0, 5.0, command)
    moments = iter([1.0, 2.0, 3.0, 99.0])

    def rest(seconds):
        seen.append((seconds, tried.read_text().count("\n") if tried.exists() else 0))
        if len(seen) == 1:
            node_timer._write(timer.folder, dataclasses.replace(lease, until=50.0))

    seen = []
    node_timer._write(timer.folder, lease)
    monkeypatch.setattr(node_timer, "clock", lambda: next(moments))
    monkeypatch.setattr(node_timer.time, "sleep", rest)
    node_timer.watch()
    assert seen == [(60.0, 1), (1.0, 1), (1.0, 1)]
    assert tried.read_text().count("\n") == 2
