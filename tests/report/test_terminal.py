"""The live table in a real terminal of a fixed size: what is on the screen while a study runs and when it has ended."""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests.report.screen import Screen
from tests.report.scripted import plain_study, wide_study
from tests.report.snapshots import FOLDER, UPDATING, check

PLAY = pathlib.Path(__file__).with_name("play.py")
PATIENCE_S = 60.0
# In which the display draws itself again several times; only where snapshots are made anew.
SETTLED_S = 2.0
LEFT_OUT = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM")


class Terminal:
    """A pseudo-terminal with a program in it that plays a script."""

    def __init__(self, script: str, first: int, width: int, height: int, **environment: str) -> None:
        self.screen = Screen(width, height)
        self.sent = b""
        self._master, slave = pty.openpty()
        self.resize(width, height)
        go, self._gate = os.pipe()
        kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        self._process = subprocess.Popen(
            [sys.executable, str(PLAY), script, str(first), str(go)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=[go],
            env={**kept, "TERM": "xterm-256color", "PYTHONPATH": str(PLAY.parents[2]), **environment},
        )
        os.close(slave)
        os.close(go)
        os.set_blocking(self._master, False)

    def resize(self, width: int, height: int) -> None:
        """Make the window another one; what is on the screen stays as it is."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.width = width

    def check_shown(self, name: str) -> None:
        """Wait until the screen shows the snapshot of this name, and fail where it does not come to."""
        deadline = time.monotonic() + (SETTLED_S if UPDATING else PATIENCE_S)
        wanted = (FOLDER / name).read_text(encoding="utf-8").splitlines() if not UPDATING else None
        while self.screen.lines != wanted and time.monotonic() < deadline:
            self._read()
            time.sleep(0.02)
        check(name, self.text())

    def end(self) -> str:
        """Let the rest be played; returns what the terminal shows after it, scrolled lines included."""
        os.close(self._gate)
        os.set_blocking(self._master, True)
        while self._read():
            pass
        os.close(self._master)
        assert self._process.wait(PATIENCE_S) == 0, self.text()
        assert self.screen.cursor_shown
        return self.text()

    def text(self) -> str:
        """Everything that can be read."""
        return "\n".join(self.screen.lines) + "\n"

    def _read(self) -> bool:
        try:
            more = os.read(self._master, 65536)
        except BlockingIOError:
            return True
        except OSError:  # the program has closed the other end
            return False
        self.sent += more
        self.screen.send(more)
        return bool(more)


# Of the events: the first point of the sixth trial.
IN_THE_MIDDLE = next(
    number for number, event in enumerate(plain_study()) if event["event"] == "progress" and event["trial"] == 5
)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (20, 8)])
def test_while_it_runs_and_at_its_end(width, height):
    terminal = Terminal("plain_study", IN_THE_MIDDLE + 1, width, height)
    terminal.check_shown(f"terminal_{width}_running.txt")
    check(f"terminal_{width}_ended.txt", terminal.end())


@pytest.mark.parametrize(("width", "height"), [(80, 16), (40, 5), (80, 3)])
def test_more_lanes_than_lines(width, height):
    terminal = Terminal("wide_study", len(wide_study().events), width, height)
    terminal.check_shown(f"terminal_lanes_{width}x{height}.txt")
    terminal.end()


def test_what_goes_wrong():
    check("terminal_eventful.txt", Terminal("eventful_study", 10**6, 80, 30).end())


def test_a_table_of_bounded_height_leaves_every_row_behind():
    text = Terminal("long_study", 10**6, 80, 16).end()
    rows = [line.split()[0] for line in text.splitlines() if line.startswith(("t0", "t1"))]
    assert sorted(row.rstrip("*") for row in rows) == [f"t{number:03d}" for number in range(200)]
    assert [row for row in rows if row.endswith("*")] == ["t050*"]
    assert len([line for line in text.splitlines() if line.startswith("trial ")]) == 1


def test_what_other_threads_print_stands_above_the_table_and_in_it_nothing_twice():
    text = Terminal("plain_study", 10**6, 80, 24, PLAY_TALKERS="3").end()
    lines = text.rstrip("\n").splitlines()
    said = sorted(line for line in lines if line.startswith("talker"))
    assert said == sorted(f"talker {name} says {number}" for name in range(3) for number in range(100))
    rows = [line.split()[0].rstrip("*") for line in lines if re.match(r"t\d{3}", line)]
    assert rows == [f"t{number:03d}" for number in range(10)]
    assert len([line for line in lines if line.startswith("trial ")]) == 1
    assert lines[-1].startswith("t009")


def test_a_window_that_changes_its_size_breaks_nothing():
    terminal = Terminal("plain_study", IN_THE_MIDDLE + 1, 80, 24)
    terminal.check_shown("terminal_80_running.txt")
    terminal.resize(40, 10)
    text = terminal.end()
    assert text.rstrip("\n").splitlines()[-1].startswith("t009   scored")


def test_a_window_of_one_character_breaks_nothing():
    assert Terminal("plain_study", 10**6, 1, 1).end().startswith("s\nt\nu\nd\ny\n")


def test_without_colour_no_text_is_styled():
    def styles(terminal):
        return set(re.findall(rb"\x1b\[[\d;]*m", terminal.sent))

    plain, coloured = Terminal("plain_study", 0, 80, 24, NO_COLOR="1"), Terminal("plain_study", 0, 80, 24)
    assert plain.end() == coloured.end()
    assert styles(coloured)
    assert not styles(plain)
