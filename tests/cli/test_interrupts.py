"""Ctrl-C and SIGTERM, sent for real: what the study is asked, what is said, what the exit code is."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from golfray.cli.interrupts import HungUp, Interrupts, Terminated, Unwinding
from golfray.cli.output import Output

SCRIPT = pathlib.Path(__file__).with_name("interrupted.py")
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
DRAINING = (
    "interrupted: no more trials are started; the running trial needs about 12 s more; "
    "Ctrl-C again ends what runs, a third time leaves at once"
)


@pytest.fixture(scope="module", autouse=True)
def hangups_are_heard():
    """Under nohup this process ignores them, and so would all that it starts."""
    before = signal.signal(HUP, signal.SIG_DFL)
    yield
    signal.signal(HUP, before)


class Waiting:
    """The script, running; ``asked`` are its lines on standard error, ``said`` those on standard output."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._news = threading.Condition()
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for("waiting")

    def wait_for(self, line: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: line in self.said, timeout=60), self.said

    def wait_for_more(self) -> None:
        """Wait until one more line was said than there had been after the last wait."""
        with self._news:
            self._seen += 1
            assert self._news.wait_for(lambda: len(self.said) > self._seen, timeout=60), self.said

    def end(self) -> tuple[int, list[str]]:
        """Let it end; returns its exit code and what was asked of the study."""
        if self.process.poll() is None:
            try:
                self.process.stdin.write("end\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                pass  # it left by itself
        asked = self.process.stderr.read().splitlines()
        self._reader.join(60)
        return self.process.wait(60), asked

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.startswith("."):
                with self._news:
                    self.said.append(line.rstrip("\n"))
                    self._news.notify_all()


@pytest.mark.parametrize(
    ("signals", "code", "asked", "said"),
    [
        ([], 0, [], []),
        ([INT], 130, ["drain: interrupted"], [DRAINING]),
        (
            [INT, INT],
            130,
            ["drain: interrupted", "stop: interrupted"],
            [DRAINING, "interrupted: ending the running trials; once more to leave at once"],
        ),
        ([TERM], 143, ["stop: terminated"], ["terminated: ending the running trials; once more to leave at once"]),
        ([HUP], 129, ["stop: hung up"], ["hung up: ending the running trials; once more to leave at once"]),
        (
            [INT, TERM],
            143,
            ["drain: interrupted", "stop: terminated"],
            [DRAINING, "terminated: ending the running trials; once more to leave at once"],
        ),
    ],
)
def test_stages(signals, code, asked, said):
    waiting = Waiting()
    for number, line in zip(signals, said, strict=True):
        waiting.process.send_signal(number)
        waiting.wait_for(line)
    assert waiting.end() == (code, asked)
    assert waiting.said == ["waiting", *said]


@pytest.mark.parametrize(
    ("signals", "error"),
    [
        ([INT, INT, INT], "KeyboardInterrupt"),
        ([TERM, TERM], "Terminated"),
        ([TERM, INT], "KeyboardInterrupt"),
        ([HUP, TERM], "Terminated"),
    ],
)
def test_the_last_one_leaves_at_once(signals, error):
    waiting = Waiting()
    for number in signals[:-1]:
        waiting.process.send_signal(number)
        waiting.wait_for_more()
    waiting.process.send_signal(signals[-1])
    assert waiting.process.wait(60) == 99
    assert waiting.end()[1][-1] == f"left: {error}"


@pytest.mark.parametrize(("number", "error"), [(INT, KeyboardInterrupt), (TERM, Terminated), (HUP, HungUp)])
def test_a_signal_that_got_lost_before_is_not_forgotten(number, error):
    before = [signal.getsignal(number) for number in (INT, TERM, HUP)]
    unwinding = Unwinding()
    try:
        for each in (INT, TERM, HUP):
            signal.signal(each, unwinding)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        with pytest.raises(error) as left, Interrupts(None, Output()):
            raise AssertionError("it was entered")
        assert type(left.value) is error
    finally:
        for each, handler in zip((INT, TERM, HUP), before, strict=True):
            signal.signal(each, handler)


def test_a_terminal_that_is_told_twice_to_be_closed_leaves_the_study_its_time():
    """By the kernel, which closes it, and by the shell, which ends with it."""
    waiting = Waiting()
    for _ in range(3):
        waiting.process.send_signal(HUP)
        waiting.wait_for_more()
    code, asked = waiting.end()
    assert (code, set(asked)) == (129, {"stop: hung up"})


def test_a_hangup_that_is_ignored_stays_ignored():
    before = [signal.getsignal(number) for number in (INT, TERM, HUP)]
    try:
        signal.signal(HUP, signal.SIG_IGN)
        with Interrupts(None, Output()) as interrupts:
            signal.raise_signal(HUP)
        assert interrupts.exit_code is None
        Unwinding().install()
        signal.raise_signal(HUP)
    finally:
        for number, handler in zip((INT, TERM, HUP), before, strict=True):
            signal.signal(number, handler)


def test_a_record_that_changes_while_it_is_read_costs_no_more_than_the_number(capsys):
    """The study goes on in the main thread while the words are made in another."""

    class Changing:
        asked = None

        def drain(self, reason):
            self.asked = reason

        def running_words(self):
            assert threading.current_thread() is not threading.main_thread()
            raise RuntimeError("dictionary changed size during iteration")

    study = Changing()
    with Interrupts(study, Output()) as interrupts:
        signal.raise_signal(INT)
    assert (study.asked, interrupts.exit_code) == ("interrupted", 130)
    assert capsys.readouterr().out.startswith(
        "interrupted: no more trials are started; what runs needs an unknown time more; Ctrl-C again"
    )


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (INT, TERM, HUP)]
    with Interrupts(None, Output()) as interrupts:
        assert not {signal.getsignal(number) for number in (INT, TERM, HUP)} & set(before)
    assert [signal.getsignal(number) for number in (INT, TERM, HUP)] == before
    assert interrupts.exit_code is None
