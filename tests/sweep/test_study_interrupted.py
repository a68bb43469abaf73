"""Leaving a study at any moment: whatever line its driver was at, the log is whole and says what ended."""

import collections
import contextlib
import functools
import itertools
import sys
from pathlib import Path

import pytest

import golfray.sweep
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.outcome import Kind
from golfray.sweep.records import StudyRecord
from golfray.sweep.unbroken import Unbroken
from tests.sweep.small_studies import SHORT

FLOOR = Path(golfray.sweep.__file__).parent
WRITERS = {
    str(FLOOR / name) for name in ("events.py", "journal.py", "study.py", "records.py", "agenda.py", "resume.py")
}


class LeaveAt:
    """Calls ``leave`` before the ``number``-th line that the writers of the log run, once, as a signal would.

    ``lines`` counts what was run; ``at`` is the line that was left.
    """

    def __init__(self, number, leave):
        self.number, self.leave = number, leave
        self.lines = 0
        self.at = None

    def __call__(self, frame, event, _argument):
        if frame.f_code.co_filename not in WRITERS:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.number:
                self.at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                # Only the first comes: what the study then does to end is not interrupted.
                sys.settrace(None)
                frame.f_trace = None
                self.leave()
        return self

    def run(self, call):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)


def leave(study):
    """As the third Ctrl-C does."""
    study.leave(KeyboardInterrupt())


def moments(study):
    """Every line of a whole study, when it is run for the first and for the last time."""
    count = collections.Counter()
    where = collections.defaultdict(list)

    def note(frame, event, _argument):
        if frame.f_code.co_filename not in WRITERS:
            return None
        if event == "line":
            count["lines"] += 1
            where[frame.f_code.co_filename, frame.f_lineno].append(count["lines"])
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        study.run()
    finally:
        sys.settrace(before)
    chosen = {number for numbers in where.values() for number in (numbers[0], numbers[-1])}
    assert len(where) > 100
    return sorted(chosen)


def check_log(folder, at):
    events = list(read_events(folder / LOG_NAME)) if (folder / LOG_NAME).exists() else []
    kinds = [event["event"] for event in events]
    if not kinds:
        return 0
    ends = collections.Counter(
        (event["trial"], event["attempt"]) for event in events if event["event"] == "attempt_ended"
    )
    assert not [attempt for attempt, number in ends.items() if number > 1], at
    submitted = {(event["trial"], event["attempt"]) for event in events if event["event"] == "attempt_submitted"}
    assert submitted <= ends.keys(), at
    assert kinds.count("study_ended") == kinds.count("study_started") + kinds.count("study_resumed"), at
    assert kinds[-1] == "study_ended", at
    return len(kinds)


@pytest.mark.slow
def test_a_study_that_is_left_at_any_line_ends_in_its_log_and_goes_on(make_in, synthetic, tmp_path):
    names = itertools.count()

    def study_in(folder):
        return make_in(SHORT, synthetic(), folder)

    whole = study_in(tmp_path / "whole")
    expected = [trial.params for trial in whole.run().trials]
    lengths = set()
    for number in moments(study_in(tmp_path / "moments")):
        folder = tmp_path / f"left-{next(names)}"
        study = study_in(folder)
        left = LeaveAt(number, functools.partial(leave, study))
        with contextlib.suppress(KeyboardInterrupt):
            left.run(study.run)
        assert left.at is not None
        records = check_log(study.folder, left.at)
        lengths.add(records)
        if not records:
            continue
        if not study.record.complete:
            assert study.record.end_reason == "interrupted", left.at
            ends = [trial.outcome for trial in study.record.trials if trial.outcome is not None and trial.unfinished]
            assert {end.kind for end in ends} <= {Kind.CANCELLED}, left.at
            study_in(folder).resume()
        record = StudyRecord.load(folder)
        assert record.complete, left.at
        assert [trial.params for trial in record.trials] == expected, left.at
    assert len(lengths) > 10


def broken_off(unbroken, error=None):
    with unbroken:
        unbroken.interrupt(KeyboardInterrupt())
        if error is not None:
            raise error
        return "whole"


def test_an_interruption_waits_for_the_end_of_what_is_not_broken_off():
    unbroken, done = Unbroken(), []
    with contextlib.suppress(KeyboardInterrupt), unbroken:
        unbroken.interrupt(KeyboardInterrupt())
        done.append("whole")
    assert done == ["whole"]
    with pytest.raises(KeyboardInterrupt):
        broken_off(unbroken)
    with pytest.raises(KeyboardInterrupt):
        unbroken.interrupt(KeyboardInterrupt())
    with unbroken:
        pass


def test_what_goes_wrong_inside_comes_first():
    unbroken = Unbroken()
    with pytest.raises(OSError, match="full"):
        broken_off(unbroken, OSError("full"))
    with unbroken:
        pass
