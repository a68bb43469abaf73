"""Readings of a clock, checked before a run is started that is told by them."""

import json

import pytest

from golfray.config.errors import ConfigError
from golfray.core.settings import StopSettings
from golfray.ship.clock_trace import check_clock_trace


def written(folder, content):
    path = folder / "clock.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("stop", "taken"),
    [
        (StopSettings(steps=None, seconds=3.0), 5),
        (StopSettings(steps=None, seconds=2.5), 4),
        (StopSettings(steps=2, seconds=3.0), 3),
        (StopSettings(steps=4, seconds=None), 5),
    ],
)
def test_as_many_readings_are_taken_as_the_run_has_boundaries(tmp_path, stop, taken):
    path = written(tmp_path, {"readings_s": [0.0, 0.9, 1.8, 2.7, 3.6]})
    assert check_clock_trace(path, stop) == taken


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"is no clock\.json of a run: Expecting "),
        ("\x00\x01", r"is no clock\.json of a run: Expecting value"),
        ([1.0], "has no readings_s, seconds from 0 up; give the clock.json of a run"),
        ({}, "has no readings_s"),
        ({"readings_s": []}, "has no readings_s"),
        ({"readings_s": [0.0, "1"]}, "has no readings_s"),
        ({"readings_s": [0.0, -1.0]}, "has no readings_s"),
        ({"readings_s": [0.0, True]}, "has no readings_s"),
        ('{"readings_s": [NaN]}', "has no readings_s"),
        (
            {"readings_s": [0.0, 1.25, 2.5]},
            r"ends after 2 steps and 2\.5 s, before stop\.steps=20 or stop\.seconds=3; give the settings of the run",
        ),
    ],
)
def test_what_is_no_trace_of_such_a_run_is_refused(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(ConfigError, match=message) as refused:
        check_clock_trace(path, StopSettings(steps=20, seconds=3.0))
    assert str(refused.value).startswith(f"{path}: ")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent/clock\.json: cannot be read: No such file or directory"):
        check_clock_trace(tmp_path / "absent" / "clock.json", StopSettings())


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "clock.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"is no clock\.json of a run: "):
        check_clock_trace(tmp_path / "clock.json", StopSettings())
