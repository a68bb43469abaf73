import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golfray.sweep.events import (
    EventLog,
    EventLogError,
    LogUnwritable,
    StudyLocked,
    decode_record,
    encode_record,
    read_events,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (left == right and math.copysign(1, left) == math.copysign(1, right)) or (
            math.isnan(left) and math.isnan(right)
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_records_survive_strict_json(record: dict) -> None:
    line = encode_record(record)
    json.loads(line, parse_constant=refuse)
    assert "\n" not in line
    assert same(decode_record(line), record)


def test_values_that_are_not_plain_are_refused() -> None:
    with pytest.raises(TypeError, match="Path"):
        encode_record({"folder": Path("x")})


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        first = log.append("study_started", study="a")
        second = log.append("progress", trial=0, metrics={"train/loss": math.nan})
    records = list(read_events(path))
    assert [record["seq"] for record in records] == [0, 1]
    assert records[0] == first
    assert math.isnan(records[1]["metrics"]["train/loss"])
    assert math.isnan(second["metrics"]["train/loss"])
    with EventLog(path) as log:
        assert log.torn is None
        assert log.append("study_ended", reason="done")["seq"] == 2


def test_cut_at_every_byte_of_its_last_record_a_log_opens_without_it_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", study="a", note="of more than one byte: \u00fc \u2014 \U0001f3cc")
        log.append("trial_asked", trial=0)
        log.append("attempt_ended", reason="\u00e4\u20ac\U0001f3cc\u2028", metrics={"train/loss": math.nan})
    whole = path.read_bytes()
    before = list(read_events(path))[:2]
    kept = whole[: whole.rindex(b"\n", 0, -1) + 1]
    assert len(whole) - len(kept) > 100
    for size in range(len(kept), len(whole)):
        path.write_bytes(whole[:size])
        assert list(read_events(path)) == before
        assert path.read_bytes() == whole[:size], "a reader changes nothing"
        with EventLog(path) as log:
            assert log.records == before
            assert (log.torn is None) == (size == len(kept))
            assert log.append("study_ended", reason="x")["seq"] == 2
        if log.torn is not None:
            assert kept + log.torn.read_bytes() == whole[:size]
            log.torn.unlink()
        assert [record["event"] for record in read_events(path)] == ["study_started", "trial_asked", "study_ended"]
    path.write_bytes(whole)
    with EventLog(path) as log:
        assert len(log.records) == 3


def test_two_damaged_records_at_the_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        for _ in range(3):
            log.append("progress")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:-5] + b"\n" + lines[2][:-5])
    with pytest.raises(EventLogError, match=r"events.jsonl:2: damaged"):
        EventLog(path)


def test_last_line_that_the_disk_kept_as_zeros_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", study="a")
    path.write_bytes(path.read_bytes() + b"\0" * 30 + b"\n")
    with EventLog(path) as log:
        assert len(log.records) == 1
        assert log.torn is not None


def test_damage_before_the_last_line_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        for _ in range(3):
            log.append("progress")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{oops\n" + lines[2])
    with pytest.raises(EventLogError, match=r"events.jsonl:2: damaged"):
        list(read_events(path))
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(EventLogError, match="expected seq 1, got 2"):
        EventLog(path)
    path.write_bytes(b"".join(lines))
    EventLog(path).close()  # the refused one left no lock behind


def test_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path), pytest.raises(StudyLocked, match="another process is writing") as caught:
        EventLog(path)
    assert caught.value.exit_code == 5
    EventLog(path).close()


def test_a_writer_that_lost_its_lock_to_another_driver_stops(tmp_path: Path) -> None:
    """As on a file system that only pretends to lock: here the other one never asks for the lock."""
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", generation=1)
        other = encode_record({"seq": 1, "time": 2.0, "event": "study_resumed", "generation": 2, "host": "elsewhere"})
        with path.open("a") as file:
            file.write(f"{other}\n")
        for _ in range(2):
            with pytest.raises(StudyLocked, match="driver 2 on elsewhere has taken the study over"):
                log.append("progress")
    assert [record["event"] for record in read_events(path)] == ["study_started", "study_resumed"]
    with EventLog(path) as log:
        with path.open("a") as file:
            file.write(encode_record({"seq": 2, "time": 3.0, "event": "progress"}) + "\n")
        with pytest.raises(StudyLocked, match="another process has written to this log"):
            log.append("progress")


def test_a_log_that_is_deleted_or_replaced_under_its_writer_is_kept_and_said(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", study="a")
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(LogUnwritable, match="was deleted under the running study") as caught:
            log.append("progress")
        assert caught.value.exit_code == 4
        assert "events.jsonl.kept-1: rename that to events.jsonl" in str(caught.value)
        assert not path.exists()
        path.write_text("another")
        with pytest.raises(LogUnwritable, match="was replaced by another file"):
            log.append("progress")
    assert path.read_text() == "another"
    assert (tmp_path / "events.jsonl.kept-1").read_bytes() == content
    (tmp_path / "events.jsonl.kept-2").rename(path)
    with EventLog(path) as log:
        assert [record["event"] for record in log.records] == ["study_started"]


def test_a_log_that_is_cut_under_its_writer_gets_no_record_with_a_gap_before_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", study="a")
        size = path.stat().st_size
        log.append("trial_asked", trial=0)
        os.truncate(path, size)
        with pytest.raises(LogUnwritable, match="was cut from"):
            log.append("progress")
    assert [record["event"] for record in read_events(path)] == ["study_started"]


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogUnwritable, match=r"events\.jsonl: cannot be written") as caught:
        EventLog(tmp_path / "missing" / "events.jsonl")
    assert caught.value.exit_code == 4


WRITER = """
import sys
from pathlib import Path
from golfray.sweep.events import EventLog
log = EventLog(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while True:
    log.append("progress", trial=0, number=number, padding="x" * 500)
    number += 1
"""


def test_killed_writer_loses_no_record_and_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        while path.stat().st_size < 50_000:
            pass
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    content = path.read_bytes()
    with EventLog(path) as log:
        assert [record["number"] for record in log.records] == list(range(len(log.records)))
        assert len(log.records) >= content.count(b"\n")
        assert log.append("study_ended", reason="resumed")["seq"] == len(log.records)


def test_a_full_disk_leaves_a_whole_log_and_names_it(tmp_path: Path) -> None:
    # A limit on a file's size cuts a write short where a full disk does, and lets a later, shorter one pass as freed
    # space does.
    program = """
import pathlib, resource, sys
from golfray.sweep.events import EventLog, EventLogError
with EventLog(pathlib.Path(sys.argv[1])) as log:
    log.append("first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
    try:
        log.append("second", text=1000 * "x")
    except EventLogError as error:
        print(error.exit_code, error)
    log.append("third")
"""
    path = tmp_path / "events.jsonl"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"4 {path}: cannot be written (File too large); its records are whole")
    assert f"`golfray tune --resume {tmp_path}`" in done.stdout
    assert [(event["seq"], event["event"]) for event in read_events(path)] == [(0, "first"), (1, "third")]
