"""Shell completion: verbs, studies and trials, as bash asks for them."""

import os
import subprocess

import pytest

from golfray.sweep.events import encode_record
from tests.cli.conftest import GOLFRAY
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


def completed(folder, typed):
    """What bash would offer after ``typed``."""
    environment = {
        **os.environ,
        "_GOLFRAY_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
    ended = subprocess.run([GOLFRAY], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.split()


def test_every_verb_that_help_names_is_offered(here):
    offered = completed(here, "golfray ")
    assert set(offered) >= {"tune", "status", "show", "logs", "train", "score", "pack", "selftest", "data", "ui"}
    assert completed(here, "golfray show t") == ["trial"]


def test_studies_and_trials_are_offered_where_they_go(here):
    assert completed(here, "golfray status ") == ["muon", "adam"]
    assert completed(here, "golfray show trial t00") == [f"t{number:03d}" for number in range(10)]
    assert completed(here, "golfray logs adam/t003") == ["adam/t003"]


def test_where_there_is_no_study_nothing_is_offered(tmp_path):
    assert completed(tmp_path, "golfray logs ") == []
