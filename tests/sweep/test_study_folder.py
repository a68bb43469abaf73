import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from golfray.config.errors import ConfigError
from golfray.sweep.events import LOG_NAME, EventLog, StudyLocked
from golfray.sweep.study_folder import (
    DRIVER_NAME,
    StudyFolderError,
    check_local_disk,
    create_study_folder,
    driver_of,
    file_system_of,
    is_held,
    no_driver_in,
    only_driver_of,
)

DRIVER = (
    "import pathlib, sys; from golfray.sweep.study_folder import only_driver_of\n"
    "with only_driver_of(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
)

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,noatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 0:44 / /home rw,relatime shared:9 - nfs4 server:/export/home rw,vers=4.2
41 40 0:45 / /home/me/scratch\\040disk rw - xfs /dev/nvme0n1 rw
42 27 0:46 / /mnt/bucket rw,nosuid - fuse.gcsfuse bucket rw,user_id=0
43 27 0:47 / /mnt/twice rw - ext4 /dev/sda rw
44 43 0:48 / /mnt/twice rw - lustre 10.0.0.1@tcp:/fs rw
45 27 0:49 / /mnt/usb rw - fuseblk /dev/sdb rw
"""


def test_a_folder_has_one_driver_at_a_time_however_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(StudyLocked) as caught, only_driver_of(tmp_path):
            pass
        assert caught.value.exit_code == 5
        assert re.fullmatch(
            rf"{tmp_path}: `golfray tune` \(process {other.pid} on {socket.gethostname()}, since [-\d]+ [:\d]+\) "
            rf"runs it already; `golfray status {tmp_path}` says how far it is",
            str(caught.value),
        )
        assert driver_of(tmp_path).pid == other.pid
        os.kill(other.pid, signal.SIGKILL)
    assert driver_of(tmp_path) is None, "its signature is still there, but the process is not"
    assert (tmp_path / DRIVER_NAME).exists()
    for _ in range(2):
        with only_driver_of(tmp_path):
            assert driver_of(tmp_path).pid == os.getpid()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "host": "h", "started": 1}'])
def test_a_signature_that_is_just_written_names_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / DRIVER_NAME).write_text(content)
    assert driver_of(tmp_path) is None
    with only_driver_of(tmp_path), pytest.raises(StudyLocked, match="`golfray tune` "), only_driver_of(tmp_path):
        pass


@pytest.mark.parametrize("verb", ["tune", "track"])
def test_a_pipe_or_a_link_in_the_place_of_the_signature_is_replaced(tmp_path: Path, verb: str) -> None:
    """Whoever writes into a pipe waits for a reader, and into a link writes elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    for put in (os.mkfifo, lambda place: place.symlink_to(elsewhere)):
        put(tmp_path / DRIVER_NAME)
        with only_driver_of(tmp_path) if verb == "tune" else no_driver_in(tmp_path, verb):
            assert driver_of(tmp_path).verb == verb
    assert elsewhere.read_text() == "mine"


def test_a_folder_in_the_place_of_the_signature_is_named(tmp_path: Path) -> None:
    (tmp_path / DRIVER_NAME).mkdir()
    message = f"{DRIVER_NAME} cannot be written: Is a directory"
    with pytest.raises(StudyFolderError, match=message), only_driver_of(tmp_path):
        pass
    with no_driver_in(tmp_path, "track"):
        pass


@pytest.mark.parametrize(
    ("holds", "wants", "message"),
    [
        (
            "track",
            "tune",
            "`golfray track` (process {}) writes MLflow from its log; wait until that has ended, or end it",
        ),
        (
            "track",
            "track",
            "`golfray track` (process {}) writes MLflow from its log; wait until that has ended, or end it",
        ),
        ("ui", "track", "`golfray ui` (process {}) writes MLflow from its log; wait until that has ended, or end it"),
        ("tune", "confirm", "`golfray tune` (process {}) runs it already; `golfray status "),
        ("confirm", "tune", "`golfray confirm` (process {}) runs it already; `golfray status "),
        (
            "confirm",
            "track",
            "`golfray confirm` (process {}) is at work here and writes MLflow itself; call this again",
        ),
        ("tune", "track", "`golfray tune` (process {}) is at work here and writes MLflow itself; call this again when"),
    ],
)
def test_who_is_kept_out_hears_by_what(tmp_path: Path, holds: str, wants: str, message: str) -> None:
    def enter(verb: str) -> AbstractContextManager[None]:
        return only_driver_of(tmp_path, verb) if verb in ("tune", "confirm") else no_driver_in(tmp_path, verb)

    with enter(holds):
        assert (driver_of(tmp_path).verb, driver_of(tmp_path).drives) == (holds, holds in ("tune", "confirm"))
        with pytest.raises(StudyLocked) as caught, enter(wants):
            pass
    said = re.sub(r" on \S+, since [-\d]+ [:\d]+", "", str(caught.value))
    assert said.startswith(f"{tmp_path}: {message.format(os.getpid())}")
    assert caught.value.exit_code == 5
    assert list(tmp_path.iterdir()) == []


LOOK = """
import pathlib, sys, threading
from golfray.sweep.study_folder import is_held
def look():
    while True:
        is_held(pathlib.Path(sys.argv[1]))
for _ in range(3):
    threading.Thread(target=look, daemon=True).start()
print("looking", flush=True)
sys.stdin.read()
"""


def test_who_looks_whether_a_driver_is_at_work_keeps_none_out(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOOK, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as lookers:
        assert lookers.stdout is not None
        assert lookers.stdout.readline() == "looking\n"
        for _ in range(150):
            with only_driver_of(tmp_path):
                assert is_held(tmp_path)
        lookers.kill()
    assert not is_held(tmp_path)


def test_of_two_that_start_at_once_one_gets_the_folder(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time; from golfray.sweep.events import StudyLocked\n"
        "from golfray.sweep.study_folder import only_driver_of\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    with only_driver_of(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()\n"
        "except StudyLocked: print('out', flush=True)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        one.stdin.write("\n")
        one.stdin.flush()
    assert sorted(one.stdout.readline() for one in both) == ["in\n", "out\n"]
    for one in both:
        one.communicate()


def test_a_lock_needs_no_folder_that_can_be_written(tmp_path: Path, mount: Callable[..., None]) -> None:
    mount("--bind", tmp_path, tmp_path)
    mount("-o", "remount,bind,ro", tmp_path)
    with no_driver_in(tmp_path, "track"):
        assert (is_held(tmp_path), driver_of(tmp_path)) == (True, None)
        with pytest.raises(StudyLocked, match="another golfray is at work here"), no_driver_in(tmp_path, "track"):
            pass
    with pytest.raises(StudyFolderError, match="cannot be written: Read-only"), only_driver_of(tmp_path):
        pass
    assert not is_held(tmp_path)


def test_a_driver_on_another_machine_counts_as_alive(tmp_path: Path) -> None:
    (tmp_path / DRIVER_NAME).write_text(json.dumps({"pid": 2**22 + 1, "host": "elsewhere", "started": 1.0}))
    assert driver_of(tmp_path).host == "elsewhere"
    (tmp_path / DRIVER_NAME).write_text(json.dumps({"pid": 2**22 + 1, "host": socket.gethostname(), "started": 1.0}))
    assert driver_of(tmp_path) is None


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homely", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/studies/muon", "nfs4"),
        ("/home/me/scratch disk/studies", "xfs"),
        ("/mnt/bucket/a", "fuse.gcsfuse"),
        ("/mnt/twice", "lustre"),
        ("/mnt/usb", "fuseblk"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "fuse.s3fs", "ceph"])
def test_a_study_on_a_network_disk_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}50 27 0:50 / {tmp_path} rw - {kind} server:/x rw\n")
    with pytest.raises(StudyFolderError, match=rf"is on a network file system \({kind}\); .* --study-dir") as caught:
        check_local_disk(tmp_path / "studies" / "muon", mounts)
    assert caught.value.exit_code == 4
    with pytest.raises(StudyFolderError, match="is on a network file system"):
        create_study_folder(tmp_path / "studies" / "muon", mounts)
    assert list(tmp_path.iterdir()) == [mounts], "nothing is left behind"


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "9p", "virtiofs", "fuseblk"])
def test_a_study_on_a_local_disk_is_not(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}50 27 0:50 / {tmp_path} rw - {kind} something rw\n")
    check_local_disk(tmp_path / "studies" / "muon", mounts)
    assert create_study_folder(tmp_path / "studies" / "muon", mounts).is_dir()


def test_the_kernels_own_table_is_read(tmp_path: Path) -> None:
    check_local_disk(tmp_path)
    table = Path("/proc/self/mountinfo").read_text()
    assert file_system_of(tmp_path.resolve(), table) != ""
    assert file_system_of(Path("/proc/self"), table) == "proc"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/a: cannot be made"):
        create_study_folder(tmp_path / "file" / "a")
    with pytest.raises(StudyFolderError, match="cannot be made") as caught:
        create_study_folder(Path("/proc/golfray/study"))
    assert caught.value.exit_code == 4


def test_a_start_that_wrote_no_whole_record_holds_no_study(tmp_path: Path) -> None:
    folder = create_study_folder(tmp_path / "a")
    (folder / LOG_NAME).write_text('{"seq":0,"time":1.0,"event":"study_sta')
    assert create_study_folder(folder) == folder
    with EventLog(folder / LOG_NAME) as log:
        log.append("study_started", study="a")
    with pytest.raises(ConfigError, match="holds a study already"):
        create_study_folder(folder)


@pytest.mark.parametrize("started", ["NaN", "Infinity", "1e308", "-1e308", "1" + 400 * "0"])
@pytest.mark.parametrize("pid", ["our own", "Infinity", "NaN", 0, -1])
def test_a_signature_of_no_moment_or_process_is_none(tmp_path, pid, started):
    pid = os.getpid() if pid == "our own" else pid  # in a name it would differ between the processes of pytest-xdist
    (tmp_path / DRIVER_NAME).write_text(f'{{"pid": {pid}, "host": "{socket.gethostname()}", "started": {started}}}')
    assert driver_of(tmp_path) is None


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)])
def test_a_signature_that_is_no_file_is_none(tmp_path, make):
    make(tmp_path / DRIVER_NAME)
    assert driver_of(tmp_path) is None
