"""Shell completion: verbs, studies and trials, as bash asks for them."""

import os

import pytest

from golfray.sweep.events import encode_record
from tests.cli.conftest import PROGRAM
from tests.report.scripted import plain_study


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with two studies below ./studies, ``muon`` written last."""
    folder = tmp_path_factory.mktemp("completion")
    lines = "".join(encode_record(event) + "\n" for event in plain_study())
    for age, name in enumerate(["muon", "adam"]):
        study = folder / "studies" / name
        study.mkdir(parents=True)
        (study / "events.jsonl").write_text(lines, encoding="utf-8")
        os.utime(study / "events.jsonl", (1_500_000_000 - age,) * 2)
    return folder


@pytest.fixture(scope="module")
def completed(running_forks):
    """What bash would offer after ``typed`` in ``folder``."""

    def complete(folder, typed):
        words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
        environment = {**os.environ, "_GOLFRAY_COMPLETE": "complete_bash", **words}
        code, out, err = running_forks.start(PROGRAM, folder=folder, environment=environment).end()
        assert (code, err) == (0, "")
        return out.split()

    return complete


def test_every_verb_that_help_names_is_offered(completed, here):
    offered = completed(here, "golfray ")
    assert set(offered) >= {
        "tune",
        "status",
        "show",
        "logs",
        "train",
        "score",
        "pack",
        "selftest",
        "doctor",
        "data",
        "ui",
    }
    assert completed(here, "golfray show t") == ["trial"]
    assert completed(here, "golfray show n") == ["nodes"]


def test_studies_and_trials_are_offered_where_they_go(completed, here):
    assert completed(here, "golfray status ") == ["muon", "adam"]
    assert completed(here, "golfray show trial t00") == [f"t{number:03d}" for number in range(10)]
    assert completed(here, "golfray logs adam/t003") == ["adam/t003"]


def test_what_can_be_claimed_is_offered(completed, here):
    assert completed(here, "golfray claim R4") == ["R40", "R41", "R42", "R44", "R45"]
    assert completed(here, "golfray claim R44 --vs adam/t003") == ["adam/t003"]
    (here / "runs.json").write_text("{}")
    assert completed(here, "golfray compare ru") == ["runs.json"]


def test_where_there_is_no_study_nothing_is_offered(completed, tmp_path):
    assert completed(tmp_path, "golfray logs ") == []
