"""A log that somebody else wrote: nothing in it is obeyed by a terminal, on any page."""

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from golfray.cli.main import app
from golfray.report.console import ConsoleObserver
from golfray.report.printable import printable
from golfray.report.summary import print_summary
from golfray.report.train_line import TrainLine, print_result
from golfray.sweep.events import encode_record
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from tests.report.scripted import Script, failed, ran

# Clears the screen, sets a title, goes back to the start of the line, turns the direction around, makes a line.
EVIL = "x\x1b[2J\x1b]0;title\x07\r\x9b2J\u202e\nt009 best [/red] [bold]y"
WRITTEN_OUT = r"x\x1b[2J\x1b]0;title\x07\r\x9b2J\u202e\nt009 best [/red] [bold]y"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@given(st.text())
@example(EVIL)
def test_what_is_printable_stays_and_the_rest_is_written_out_on_one_line(text):
    shown = printable(text)
    assert not OBEYED.search(shown)
    assert len(shown.splitlines()) <= 1
    assert "\t" not in shown
    if text.isprintable():
        assert shown == text
    assert printable(shown) == shown
    shown.encode()


def test_tabs_can_be_kept():
    assert printable("a\tb\x1b", keep="\t") == "a\tb\\x1b"


def evil_study():
    """Whatever a log has as text is evil in it."""
    script = Script()
    script.start()
    for event in script.events:
        event |= {"study": EVIL, "preset": EVIL, "scale": EVIL, "describe": [EVIL], "host": EVIL, "sampler": EVIL}
        event["data"] = {**event["data"], "name": EVIL, "warning": EVIL, "reference": {EVIL: 1.0}}
        event["space"] = {
            **event["space"],
            "knobs": {**event["space"]["knobs"], EVIL: {"type": "choice", "choices": [EVIL]}},
        }
        event["tracking_uri"] = EVIL
    trial = script.ask(EVIL)
    script.events[-1]["params"] = {EVIL: EVIL}
    script.events[-1]["settings"][EVIL] = EVIL
    script.submit(trial, lane=EVIL)
    script.phase(trial, EVIL)
    script.end(trial, failed(Kind.CRASHED, EVIL, EVIL), final=False)
    script.submit(trial, attempt=2)
    script.end(trial, ran(1.9, 320_000), attempt=2)
    script.resume(2, [EVIL])
    script.add("observer_failed", observer=EVIL, error=EVIL)
    running = script.ask(EVIL)
    script.events[-1]["settings"][EVIL] = EVIL
    script.submit(running)
    script.phase(running, EVIL)
    script.finish(EVIL, complete=False)
    for event in script.events:
        if event["event"] == "study_resumed":
            event |= {name: script.events[0][name] for name in ("preset", "scale", "data", "space", "describe")}
    return script


@pytest.mark.parametrize("terminal", [True, False])
def test_a_study_as_it_runs_and_its_end(terminal):
    console = Console(file=io.StringIO(), width=80, highlight=False, force_terminal=terminal, color_system=None)
    observer = ConsoleObserver(console, verbose=True)
    for event in evil_study():
        observer.on_event(event)
    observer.close()
    print_summary(StudyRecord.from_events(evil_study()), Path("studies/muon"), console, verbose=True)
    text = console.file.getvalue()
    if terminal:
        # What rich itself sends: the cursor is hidden, moved over the table and shown again.
        text = re.sub(r"\x1b\[(\?25[lh]|2K|1A)|\r", "", text)
    assert not OBEYED.search(text)
    assert "t009 best" not in [line[: len("t009 best")] for line in text.splitlines()]
    if not terminal:
        assert f"study {WRITTEN_OUT}: {WRITTEN_OUT} at scale" in text


def test_a_trial_of_train():
    console = Console(file=io.StringIO(), width=80, highlight=False)
    with TrainLine(None, 15.0, console) as train_line:
        train_line.text("a\tb\x1b[2J")
    print_result(failed(Kind.CRASHED, EVIL), Path("runs\x1b"), console, EVIL)
    assert not OBEYED.search(console.file.getvalue())


@pytest.mark.parametrize("words", [["status"], ["status", "-v"], ["show", "trial", "0"], ["show", "trial", "1"]])
def test_pages_and_documents(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "studies" / "muon"
    folder.mkdir(parents=True)
    events = list(evil_study())
    for event in events:
        # A trial's page compares with a preset that there is.
        event |= {"preset": "parameter-golf", "scale": "laptop"} if "preset" in event else {}
    (folder / "events.jsonl").write_text("".join(encode_record(event) + "\n" for event in events), encoding="utf-8")
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert not OBEYED.search(said.output)
    assert r"\x1b" in said.output
    # A program gets what the log has, and JSON keeps a terminal from obeying it.
    out = CliRunner().invoke(app, [*words, "--json"]).stdout
    assert json.dumps(EVIL)[1:-1] in out
    assert not OBEYED.search(out)
