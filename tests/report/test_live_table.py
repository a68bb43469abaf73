"""Rows in any width: nothing longer than the window, nothing that moves to the left again, estimates in round words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.report.live_table import COLUMNS, LiveTable, Row, Status, rough_seconds_text
from golfray.sweep.choosing import best_feasible
from golfray.sweep.records import StudyRecord
from tests.report.scripted import plain_study

cell = st.text(alphabet="abc0123456789,.+-", max_size=14)
rows = st.lists(
    st.builds(Row, st.tuples(*[cell] * len(COLUMNS)), reason=st.sampled_from(["", "rank 0: out of memory " * 4])),
    max_size=5,
)


@given(rows, st.integers(1, 200))
def test_no_line_is_longer_than_the_window(rows, width):
    lines = LiveTable().lines(rows, width)
    assert len(lines) == len(rows) + 1
    assert all(line.cell_len <= width for line in lines)


@given(rows, rows)
def test_columns_only_get_wider(first, second):
    table = LiveTable()
    before = table.lines(first, 300)[0].plain
    after = table.lines(second, 300)[0].plain
    assert all(before.index(column.name) <= after.index(column.name) for column in COLUMNS)


@pytest.mark.parametrize(
    ("width", "names"),
    [
        (80, "trial role outcome progress loss BPB bytes margin"),
        (60, "trial role outcome progress loss BPB margin"),
        (40, "trial outcome progress BPB"),
        (20, "trial outcome"),
        (3, "tr…"),
    ],
)
def test_what_matters_least_goes_first(width, names):
    assert LiveTable().lines([], width)[0].plain.split() == names.split()


def test_a_reason_stands_where_the_numbers_would():
    row = Row(("t001", "sampler", "crashed", "", "", "", "", ""), reason="rank 1: killed by signal 9")
    assert LiveTable().line(row, 80).plain == "t001   sampler     crashed   rank 1: killed by signal 9"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10 s"), (14, "10 s"), (47, "50 s"), (54.9, "50 s"), (55, "1 min"), (89, "1 min"), (3569, "59 min")]
    + [(3570, "1 h"), (3600, "1 h"), (4000, "1 h 10 min"), (7000, "2 h")],
)
def test_estimates_have_few_digits(seconds, text):
    assert rough_seconds_text(seconds) == text


def test_time_goes_on_between_events():
    record = StudyRecord.from_events(plain_study().events[:-1])
    status = Status.of(record, best_feasible(record), record.last_event)
    assert status.line(record.last_event + 60, 100).plain == (
        "10/10 trials | 3 min 36 s | about 10 s left | best t006 1.7778, margin +31,711"
    )
    assert status.line(record.last_event + 60, 20).plain == "10/10 trials | 3 mi…"
