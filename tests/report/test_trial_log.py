"""What ranks printed: all of it, one rank's, an earlier attempt's, or that there is none."""

import os

import pytest

from golfray.config.errors import ConfigError
from golfray.report.trial_log import find_log
from golfray.sweep.events import encode_record
from tests.report.scripted import eventful_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies") / "muon"
    folder.mkdir()
    lines = "".join(encode_record(event) + "\n" for event in eventful_study())
    (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    for attempt, texts in {
        1: {"rank-0.log": "one\n", "rank-1.log": "Traceback\n  killed\n", "stacks.txt": "rank 1: all_reduce\n"},
        2: {"rank-0.log": "two\n", "rank-10.log": "ten\n", "rank-9.log": "nine\n"},
    }.items():
        attempt_folder = folder / "trials" / "0001" / f"attempt-{attempt}"
        attempt_folder.mkdir(parents=True)
        for name, text in texts.items():
            (attempt_folder / name).write_text(text)
    return folder


def said(study, *arguments, trial="1"):
    return find_log(str(study / trial), *arguments).lines()


def test_all_ranks_of_the_last_attempt_in_their_order(study):
    assert said(study) == [
        "==> rank-0.log <==",
        "two",
        "==> rank-9.log <==",
        "nine",
        "==> rank-10.log <==",
        "ten",
    ]


def test_an_earlier_attempt_with_the_stacks_of_a_hung_one(study):
    assert said(study, None, 1)[-2:] == ["==> stacks.txt <==", "rank 1: all_reduce"]


def test_one_rank_is_its_bare_text(study):
    assert said(study, 1, 1) == ["Traceback", "  killed"]


def test_what_a_killed_rank_left_in_the_middle_of_a_character_is_shown(study):
    path = study / "trials" / "0001" / "attempt-1" / "rank-0.log"
    path.write_bytes("naïve".encode()[:3])
    assert said(study, 0, 1) == ["na\N{REPLACEMENT CHARACTER}"]
    path.write_text("one\n")


def test_the_document_has_each_file(study):
    assert find_log(str(study / "1"), 1, 1).document() == {
        "folder": str(study / "trials/0001/attempt-1"),
        "files": [{"name": "rank-1.log", "text": "Traceback\n  killed\n"}],
    }


@pytest.mark.parametrize(
    ("trial", "arguments", "message"),
    [
        ("1", (2, 1), "has no log of rank 2; it has ranks 0, 1"),
        ("1", (None, 3), "has no attempt 3; it has 1, 2"),
        ("2", (), "never ran, so it printed nothing"),
        ("3", (), "has no rank-<n>.log: its ranks printed nothing, or have not started yet"),
    ],
)
def test_what_is_not_there_is_said(study, trial, arguments, message):
    with pytest.raises(ConfigError) as refused:
        said(study, *arguments, trial=trial)
    assert str(refused.value).endswith(message)


def test_the_log_of_a_train_folder(tmp_path):
    (tmp_path / "train.log").write_text("step:1\n")
    assert find_log(str(tmp_path)).lines() == ["step:1"]
    with pytest.raises(ConfigError, match=r"has one train\.log for all ranks; leave --rank and --attempt out"):
        find_log(str(tmp_path), rank=0)


def test_nothing_but_a_line_end_ends_a_line(study):
    path = study / "trials" / "0001" / "attempt-1" / "rank-0.log"
    path.write_text("a\tb\x1b[31mred\x0c\x85\u2028é\n\nend\n")
    assert find_log(str(study / "1"), 0, 1).lines() == ["a\tb\x1b[31mred\x0c\x85\u2028é", "", "end"]
    path.write_text("")
    assert find_log(str(study / "1"), 0, 1).lines() == []
    path.write_text("one\n")


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(study):
    path = study / "trials" / "0001" / "attempt-1" / "rank-7.log"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is no regular file"):
        find_log(str(study / "1"), 7, 1).lines()
    path.unlink()
