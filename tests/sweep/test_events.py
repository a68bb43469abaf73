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

from golfray.sweep.events import EventLog, EventLogError, decode_record, encode_record, read_events

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


@pytest.mark.parametrize("cut", range(1, 40, 7))
def test_torn_last_line_is_cut_kept_and_said(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append("study_started", study="a")
        log.append("trial_asked", trial=0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert [record["event"] for record in read_events(path)] == ["study_started"]
    assert path.read_bytes() == whole[:-cut], "a reader changes nothing"
    with EventLog(path) as log:
        assert log.torn is not None
        assert [record["event"] for record in log.records] == ["study_started"]
        assert log.append("study_ended", reason="x")["seq"] == 1
    first_line = whole[: whole.index(b"\n") + 1]
    assert first_line + log.torn.read_bytes() == whole[:-cut]
    assert [record["event"] for record in read_events(path)] == ["study_started", "study_ended"]


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
    with EventLog(path), pytest.raises(EventLogError, match="another process is writing"):
        EventLog(path)
    EventLog(path).close()


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
from golfray.sweep.events import EventLog
with EventLog(pathlib.Path(sys.argv[1])) as log:
    log.append("first")
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
    try:
        log.append("second", text=1000 * "x")
    except OSError as error:
        print(error)
    log.append("third")
"""
    path = tmp_path / "events.jsonl"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"[Errno 27] File too large: '{path}'\n"
    assert [(event["seq"], event["event"]) for event in read_events(path)] == [(0, "first"), (1, "third")]
