"""A log that is JSON line by line and still not what a study wrote: every reader says so, and where."""

import copy
import os

import pytest

from golfray.config.errors import ConfigError
from golfray.report.lookup import FoundStudy, FoundTrial
from golfray.report.status import StudyStatus
from golfray.report.summary import trials_table
from golfray.report.trial_page import trial_document, trial_lines
from golfray.sweep.events import EventLog, EventLogError, encode_record, read_events
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import load_space
from golfray.sweep.space_record import space_of
from tests.report.scripted import eventful_study

SPACE = """\
name: muon
preset: parameter-golf
scale: laptop
budget: {trials: 8}
knobs:
  optimizer.matrix_lr: {low: 0.015, high: 0.15, log: true}
  muon.weight_decay: {low: 0.01, high: 0.5, log: true, or_zero: true}
  export.bits_mlp: {low: 4, high: 8}
  export.bits_embedding: {choices: [6, 8]}
"""
# Whole values of every type that JSON has, and some that look nearly right.
WRONG = (None, -1, 1e300, "x", [1], {"x": "y"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The events of a study in which everything happens, with a space as golfray writes it."""
    path = tmp_path_factory.mktemp("space") / "muon.yaml"
    path.write_text(SPACE)
    space = load_space(path, has_gpu=False).to_dict()
    events = [copy.deepcopy(event) for event in eventful_study()]
    for event in events:
        if "space" in event:
            event["space"] = space
    return events


def read(events, folder, shown=None):
    """What the verbs do with a log, all of it; ``shown``: the one trial whose page is read."""
    record = StudyRecord.from_events(events)
    study = FoundStudy(folder, record)
    for alive in (True, False):
        status = StudyStatus(study, alive, None, record.last_event + 1)
        status.lines()
        status.document()
    trials_table(record, 80)
    for trial in record.trials if shown is None else record.trials[shown : shown + 1]:
        trial_lines(FoundTrial(study, trial))
        trial_document(FoundTrial(study, trial))
    space_of(record, "log")


def places(value, path=()):
    """The paths of everything in a record; of equal items of a list, of the first."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def one_of_each(events):
    """{(type, whether an outcome is there, ...): index} of the records that are damaged in turn."""
    shapes = {}
    for index, event in enumerate(events):
        shapes.setdefault((event["event"], event.get("refused") is None, str(event.get("outcome", {}))[:12]), index)
    return shapes.values()


def changed(events, index, path, change):
    damaged = list(events)
    damaged[index] = copy.deepcopy(events[index])
    node = damaged[index]
    for key in path[:-1]:
        node = node[key]
    change(node, path[-1])
    return damaged


def refused_or_read(events, folder, shown=None):
    try:
        read(events, folder, shown)
    except (EventLogError, ConfigError):
        return True
    return False


def test_the_whole_log_is_read(whole, tmp_path):
    assert not refused_or_read(whole, tmp_path)


def test_a_key_less_or_another_value_is_refused_or_read(whole, tmp_path):
    refused = 0
    for index in one_of_each(whole):
        for path in places(whole[index]):
            if path == ("seq",) or (whole[index]["event"] == "study_resumed" and "knobs" in path[:-1]):
                continue  # what reads the file compares it with the line's number; as in the first record

            # No page of a trial shows the space, and the pages of other trials have been read before.
            shown = len(whole) if path[0] == "space" else whole[index].get("trial", 0)

            def delete(node, key):
                del node[key]

            refused += refused_or_read(changed(whole, index, path, delete), tmp_path, shown)
            for value in WRONG:

                def replace(node, key, value=value):
                    node[key] = value

                refused += refused_or_read(changed(whole, index, path, replace), tmp_path, shown)
    assert refused > 300


@pytest.mark.parametrize(
    ("event", "path", "value", "said"),
    [
        ("attempt_submitted", ("job_id",), 3, "job_id: "),
        ("attempt_submitted", ("folder",), "../../../../etc", "leads out of the study's folder"),
        ("attempt_submitted", ("folder",), "/etc", "leads out of the study's folder"),
        ("attempt_ended", ("outcome", "kind"), "splendid", "outcome.kind: "),
        ("attempt_ended", ("outcome", "artifact"), "../../secret", "leads out of the study's folder"),
        ("trial_asked", ("params",), [], "params: "),
        ("progress", ("time",), 1e300, "time: "),
        ("study_started", ("event",), "rung_reached", "a log begins with study_started, not with rung_reached"),
        ("study_started", ("slots",), "one", "slots: "),
    ],
)
def test_what_is_wrong_and_on_which_line(whole, tmp_path, event, path, value, said):
    index = next(index for index, record in enumerate(whole) if record["event"] == event)

    def replace(node, key):
        node[key] = value

    with pytest.raises(EventLogError) as caught:
        read(changed(whole, index, path, replace), tmp_path)
    assert str(caught.value).startswith(f"events.jsonl:{index + 1}: damaged record (")
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("depth", [60, 100_000])
def test_endless_nesting_is_a_damaged_line(tmp_path, depth):
    log = tmp_path / "events.jsonl"
    deep = '{"seq":0,"time":1.0,"event":"x","a":' + "[" * depth + "]" * depth + "}\n"
    log.write_text(deep + encode_record({"seq": 1, "time": 1.0, "event": "x"}) + "\n")
    with pytest.raises(EventLogError, match=r"events.jsonl:1: damaged record \(nested more than 50 levels deep\)"):
        list(read_events(log))


def test_nan_and_endless_seconds_are_read(whole, tmp_path):
    for value in (float("nan"), float("inf")):
        events = copy.deepcopy(whole)
        for event in events:
            if "outcome" in event:
                event["outcome"]["phases"] = {"data": value}
                event["outcome"]["metrics"] = dict.fromkeys(event["outcome"]["metrics"], value)
        assert not refused_or_read(events, tmp_path)


def test_a_pipe_in_the_place_of_the_log_is_refused(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    for reads in (EventLog, lambda path: list(read_events(path))):
        with pytest.raises(EventLogError, match="is no regular file"):
            reads(tmp_path / "events.jsonl")
