"""Reading a log while it is written: every record once, none before it is whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.sweep.events import EventLogError, encode_record
from golfray.tracking.log_follower import LogFollower


def lines(count):
    return [f"{encode_record({'seq': seq, 'time': 1.5, 'event': 'é', 'value': seq / 3})}\n" for seq in range(count)]


@settings(deadline=None)
@given(data=st.data(), count=st.integers(0, 8))
def test_whatever_arrives_between_two_looks_every_record_comes_once(tmp_path_factory, data, count):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    whole = "".join(lines(count)).encode()
    follower, seen, written = LogFollower(path), [], 0
    for size in [0, *sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6))), len(whole)]:
        written = max(written, size)
        path.write_bytes(whole[:written])
        new = [event["seq"] for event in follower.new_events()]
        seen += new
        assert len(seen) == whole[:written].count(b"\n")
        assert follower.seq == len(seen) - 1
    assert seen == list(range(count))


def test_a_last_line_that_the_disk_kept_in_part_waits_and_one_before_the_last_is_damage(tmp_path):
    path = tmp_path / "events.jsonl"
    first, second, third = lines(3)
    path.write_text(first + second[:9] + "\n")
    follower = LogFollower(path)
    assert [event["seq"] for event in follower.new_events()] == [0]
    assert list(follower.new_events()) == []
    path.write_text(first + second[:9] + "\n" + third)
    with pytest.raises(EventLogError, match="damaged record after seq 0"):
        list(follower.new_events())
    path.write_text(first + third)
    with pytest.raises(EventLogError, match="expected seq 1, got 2"):
        list(follower.new_events())
