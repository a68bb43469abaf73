"""Which study and trial a few characters mean, while a driver writes and after."""

import json
import os
import pathlib

import pytest

from golfray.config.errors import ConfigError
from golfray.report.lookup import find_study, load_study, load_trial, study_names, trial_names
from golfray.sweep.events import EventLogError, encode_record
from tests.report.scripted import plain_study


def write(folder, script, written_at=None):
    folder.mkdir(parents=True)
    log = folder / "events.jsonl"
    log.write_text("".join(encode_record(event) + "\n" for event in script), encoding="utf-8")
    if written_at is not None:
        os.utime(log, (written_at, written_at))
    return folder


@pytest.fixture
def studies(tmp_path, monkeypatch):
    """A folder with three studies below ./studies, ``muon`` written last, and one elsewhere."""
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["muon", "adam", "wide"]):
        write(tmp_path / "studies" / name, plain_study(), 1_500_000_000 - age)
    (tmp_path / "studies" / "empty").mkdir()
    return write(tmp_path / "elsewhere" / "other", plain_study()).parent


def test_names_come_with_the_latest_first(studies):
    assert study_names() == ["muon", "adam", "wide"]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (None, "studies/muon"),
        ("adam", "studies/adam"),
        ("studies/adam", "studies/adam"),
        ("elsewhere/other", "elsewhere/other"),
    ],
)
def test_a_study_by_name_folder_or_age(studies, name, folder):
    assert str(find_study(name)) == folder
    assert load_study(name).record.name == "muon"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("moun", "moun: no study here (events.jsonl is missing); did you mean muon?"),
        ("xyz", "xyz: no study here (events.jsonl is missing); studies/ has adam, muon, wide"),
        ("studies/empty", "studies/empty: no study here (events.jsonl is missing); studies/ has adam, muon, wide"),
    ],
)
def test_an_unknown_study_is_answered_with_those_there_are(studies, name, message):
    with pytest.raises(ConfigError) as refused:
        find_study(name)
    assert str(refused.value) == message


@pytest.mark.parametrize("put", [os.mkdir, os.mkfifo, lambda log: log.symlink_to(log)])
def test_a_log_that_is_no_file_is_said_to_be_one(studies, put):
    folder = pathlib.Path("studies", "odd")
    folder.mkdir()
    put(folder / "events.jsonl")
    for name in ("odd", "studies/odd"):
        with pytest.raises(ConfigError, match=r"^studies/odd: its events.jsonl is no regular file; restore it from a"):
            find_study(name)


def test_without_any_study_it_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^no study in studies/ here; .* start one with `golfray tune`$"):
        find_study(None)
    with pytest.raises(ConfigError, match=r"there is none in studies/ either$"):
        find_study("muon")


@pytest.mark.parametrize(
    ("text", "folder", "number"),
    [
        ("3", "studies/muon", 3),
        ("t003", "studies/muon", 3),
        ("0003", "studies/muon", 3),
        ("adam/9", "studies/adam", 9),
        ("studies/adam/t009", "studies/adam", 9),
        ("studies/adam/trials/0009", "studies/adam", 9),
        ("studies/adam/trials/0009/", "studies/adam", 9),
        ("elsewhere/other/0", "elsewhere/other", 0),
    ],
)
def test_a_trial_in_every_way_of_writing_it(studies, text, folder, number):
    found = load_trial(text)
    assert (str(found.study.folder), found.trial.number) == (folder, number)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "10: no trial 10 in studies/muon: it has t000 to t009"),
        ("adam/77", "adam/77: no trial 77 in studies/adam: it has t000 to t009"),
        ("muon", "muon: names no trial; write 3, t003, muon/3 or studies/muon/t003"),
        ("muon/best", "muon/best: names no trial; write 3, t003, muon/3 or studies/muon/t003"),
        ("-3", "-3: names no trial; write 3, t003, muon/3 or studies/muon/t003"),
        ("/3", "/3: names no trial; write 3, t003, muon/3 or studies/muon/t003"),
        ("mun/3", "mun: no study here (events.jsonl is missing); did you mean muon?"),
    ],
)
def test_an_unknown_trial_is_answered_with_what_there_is(studies, text, message):
    with pytest.raises(ConfigError) as refused:
        load_trial(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(("trials", "has"), [(0, "none yet"), (1, "only t000")])
def test_a_study_that_has_hardly_begun(tmp_path, trials, has):
    script = plain_study()
    end = [number for number, event in enumerate(script) if event["event"] == "trial_asked"][trials]
    write(tmp_path / "young", script.events[:end])
    with pytest.raises(ConfigError, match=rf"no trial 1 in .*/young: it has {has}$"):
        load_trial(str(tmp_path / "young" / "1"))


def test_a_log_is_read_while_its_last_line_is_being_written(tmp_path):
    folder = write(tmp_path / "muon", plain_study().events[:-1])
    whole = load_study(str(folder)).record
    line = encode_record(plain_study().events[-1])
    for length in (1, len(line) // 2, len(line)):
        with (folder / "events.jsonl").open("a", encoding="utf-8") as log:
            log.write(line[:length])
        record = load_study(str(folder)).record
        assert (len(record.trials), record.last_event, record.end_reason) == (10, whole.last_event, None)
        os.truncate(folder / "events.jsonl", (folder / "events.jsonl").stat().st_size - length)


def test_a_log_without_a_record_is_a_study_that_is_starting(tmp_path):
    folder = write(tmp_path / "muon", [])
    with pytest.raises(ConfigError, match="the study is only starting"):
        load_study(str(folder))


def test_a_damaged_log_is_named_with_its_line(tmp_path):
    folder = write(tmp_path / "muon", plain_study())
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join([*lines[:4], "{\n", *lines[5:]]), encoding="utf-8")
    with pytest.raises(EventLogError, match=r"events\.jsonl:5: damaged record"):
        load_study(str(folder))


def test_completion_offers_trials_and_studies(studies):
    assert trial_names("t00")[:2] == ["t000", "t001"]
    assert trial_names("m") == ["muon/"]
    assert trial_names("adam/t008") == ["adam/t008"]
    assert trial_names("adm/") == []
    (studies.parent / "studies" / "muon" / "events.jsonl").write_text(json.dumps([]) + "\n" * 2)
    assert trial_names("t00") == []
