"""Standard output that cannot be written: on a full disk, or closed before the start."""

import json
import subprocess
import sys

import pytest

from golfray.sweep.events import encode_record
from tests.report.scripted import plain_study

CALL = [sys.executable, "-c", "from golfray.cli.main import main; main()"]


def shell(words: str, redirection: str) -> subprocess.CompletedProcess:
    command = f'"$@" {words} {redirection}'
    return subprocess.run(["bash", "-c", command, "bash", *CALL], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("words", ["--version", "show schema", "--help"])
def test_a_full_disk_is_no_bug(words):
    ended = shell(words, "> /dev/full")
    assert (ended.returncode, ended.stderr) == (4, "golfray: standard output or a file: No space left on device\n")


@pytest.mark.parametrize("words", ["status -v", "status --json", "show trial"])
def test_a_disk_that_is_full_under_the_pages_of_a_study_is_no_bug(tmp_path, mount, words):
    """Lines, a table and a document; `golfray tune` prints its end in the same ways."""
    study, disk = tmp_path / "muon", tmp_path / "disk"
    study.mkdir()
    disk.mkdir()
    lines = "".join(encode_record(event) + "\n" for event in plain_study())
    (study / "events.jsonl").write_text(lines, encoding="utf-8")
    mount("-t", "tmpfs", "-o", "size=16k", "golfray-test", disk)
    with pytest.raises(OSError, match="No space left"):
        (disk / "filler").write_bytes(bytes(2**16))
    what = f"{words} {study}" + ("/6" if words == "show trial" else "")
    ended = shell(what, f"> {disk}/out")
    lines, message = ended.stderr.splitlines(), "golfray: standard output or a file: No space left on device"
    assert (ended.returncode, lines.count(message)) == (4, 1)
    below = lines[lines.index(message) + 1 :]
    assert below[:1] == (["Traceback (most recent call last):"] if "-v" in words else [])


def test_a_full_disk_under_a_file_is_no_bug():
    ended = shell("show schema -o /dev/full", "")
    assert ended.returncode == 4
    assert ended.stderr.endswith(": No space left on device\n")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("redirection", [">&-", ">&- 0<&-"])
def test_a_closed_output_is_an_output_that_nobody_reads(redirection):
    ended = shell("show schema", redirection)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_closed_errors_leave_the_result():
    ended = shell("show schema", "2>&-")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)
