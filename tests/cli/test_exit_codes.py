"""Every way to end has its exit code, its one message and, with --json, its document; the page says the same."""

import json
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from golfray.cli.exit_codes import EXIT_CODES_HELP, MEANINGS
from tests.cli.documented import read_tables
from tests.cli.on_terminal import OnTerminal
from tests.forks import Forks

SCRIPT = pathlib.Path(__file__).with_name("failing.py")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "exit_codes.md"

# How it ends: exit code, the last line on standard error, and the message of the document where that is another.
ENDS: dict[str, tuple[int, str | None, str | None]] = {
    "well": (0, None, None),
    "bug": (1, "TypeError: RunSettings.__init__() got an unexpected keyword argument 'no_such_field'", "this is a bug"),
    "broken_pipe": (1, "BrokenPipeError: [Errno 32] Broken pipe", "this is a bug"),
    "usage": (2, "golfray: a.yaml:14:7 knobs.x.high: must be > low (0.02), got 0.002", None),
    "budget": (3, "golfray: budget.minutes: does not hold even one trial", None),
    "file": (4, "golfray: absent.bin: No such file or directory", None),
    "memory": (
        4,
        "golfray: host memory exhausted (MemoryError); free memory, or make model or batch smaller",
        None,
    ),
    "launch": (4, "golfray: the trial ended with exit code 1", None),
    "locked": (5, "golfray: studies/muon: another golfray is at work here", None),
    "verdict": (7, None, None),
    "interrupt": (130, "golfray: interrupted", None),
    "abort": (130, "golfray: interrupted", None),
    "sigterm": (143, "golfray: terminated", None),
    "sighup": (129, "golfray: hung up", None),
    "hung_up": (129, "golfray: hung up", None),
    "terminated": (143, "golfray: terminated", None),
    "ray": (143, "golfray: terminated", None),
}


@pytest.fixture(scope="module")
def run(running_forks: Forks):
    """Runs ``golfray fail ...``."""

    def fail(*arguments: str) -> subprocess.CompletedProcess:
        process = running_forks.start(SCRIPT.read_text(encoding="utf-8"), "fail", *arguments)
        return subprocess.CompletedProcess(arguments, *process.end())

    return fail


@pytest.fixture(scope="module")
def ended(run):
    """How each of them ended, with documents."""
    return {how: run(how, "--json") for how in ENDS}


@pytest.mark.parametrize("how", ENDS)
def test_code_message_and_document(ended, how):
    code, message, told = ENDS[how]
    lines = ended[how].stderr.splitlines()
    assert (ended[how].returncode, lines[-1] if lines else None) == (code, message), ended[how]
    assert any("Traceback" in line for line in lines) == (code == 1)
    if message is None:
        assert ended[how].stdout == ""
        return
    (document,) = map(json.loads, ended[how].stdout.splitlines())
    assert read_tables().mistakes(document) == []
    assert document["exit_code"] == code
    assert document["message"].startswith(told or message.removeprefix("golfray: "))


def test_the_document_says_where(ended):
    document = json.loads(ended["usage"].stdout)
    place = {name: document[name] for name in ("file", "line", "column", "path")}
    assert place == {"file": "a.yaml", "line": 14, "column": 7, "path": "knobs.x.high"}


def test_without_json_standard_output_stays_empty(run):
    assert run("usage").stdout == ""


def test_wrong_use_has_a_document_too(run):
    ended = run("--jsn", "--json", "usage")
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["message"].startswith("No such option: --jsn")
    assert ended.stderr.startswith("Usage: golfray fail ")


def test_a_closed_output_ends_it_without_a_word():
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "fail", "closed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline()
    process.stdout.close()
    assert (process.wait(120), process.stderr.read()) == (141, "")


@pytest.mark.parametrize(("disowned", "code"), [(False, 129), (True, 141)])
def test_a_closed_terminal_ends_it(disowned, code):
    """Told so by SIGHUP, or by the first line that has nowhere to go."""
    terminal = OnTerminal([sys.executable, SCRIPT, "fail", "terminal"], disowned)
    terminal.read_until("ready")
    terminal.hang_up()
    assert terminal.end(120) == code


def test_an_error_of_the_system_has_its_traceback_where_more_is_wanted(run):
    ended = run("file", "-v")
    assert ended.returncode == 4
    lines = ended.stderr.splitlines()
    assert lines[:2] == ["golfray: absent.bin: No such file or directory", "Traceback (most recent call last):"]
    assert lines[-1] == "FileNotFoundError: [Errno 2] No such file or directory: 'absent.bin'"


def test_a_current_folder_that_was_deleted(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    command = [sys.executable, SCRIPT, "fail", "well", "--json"]
    # The shell deletes the folder in which the command starts.
    ended = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *command], cwd=folder, capture_output=True, text=True
    )
    message = "the current folder was deleted; cd to one that exists, and try again"
    assert (ended.returncode, ended.stderr) == (4, f"golfray: {message}\n")
    assert json.loads(ended.stdout)["message"] == message


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["--version"]])
def test_help_that_nobody_reads_ends_without_a_word(golfray, arguments):
    started = golfray.start(*arguments)
    started.process.stdout.close()
    assert (started.process.wait(120), started.process.stderr.read()) == (141, "")


def test_the_page_and_the_help_have_every_code():
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {int(code): meaning for code, meaning in rows.items()} == MEANINGS
    assert [code for code in rows if f" {code} " not in EXIT_CODES_HELP] == []


def test_codes_of_signals_are_those_of_shells():
    codes = {meaning: code for code, meaning in MEANINGS.items()}
    signals = {
        "hung up": signal.SIGHUP,
        "interrupted": signal.SIGINT,
        "terminated": signal.SIGTERM,
        "output closed": signal.SIGPIPE,
    }
    assert {name: codes[name] for name in signals} == {name: 128 + number for name, number in signals.items()}
