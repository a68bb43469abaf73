"""`confirm` as it is typed: two tiny trials are trained, run again on fresh seeds, and compared."""

import pytest

from golfray.sweep.events import encode_record
from tests.cli.test_json import documents_of
from tests.report.scripted import plain_study


@pytest.fixture(scope="module")
def refused(golfray):
    """What it says where it starts nothing."""
    for name in ("muon", "adam"):
        folder = golfray.folder / "studies" / name
        folder.mkdir(parents=True)
        lines = "".join(encode_record(event) + "\n" for event in plain_study())
        (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    return golfray.run_all(
        {
            "two studies": ["confirm", "muon/6", "adam/6", "--seeds=2"],
            "a repetition": ["confirm", "muon/2", "--seeds=2"],
            "no seeds": ["confirm", "muon/6"],
            "no trial": ["confirm", "muon/60", "--seeds=2"],
        }
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two studies", "all trials must be of one study, got studies/muon, studies/adam"),
        ("a repetition", "golfray: t002: is t000 on another seed; confirm t000"),
        ("no seeds", "Missing option '--seeds'"),
        ("no trial", "golfray: muon/60: no trial 60 in studies/muon: it has t000 to t009"),
    ],
)
def test_refused(refused, name, message):
    assert (refused[name].code, refused[name].out) == (2, "")
    assert message in " ".join(refused[name].err.split())


@pytest.mark.slow
def test_a_study_is_searched_confirmed_and_claimed(golfray, write_space):
    space = write_space(golfray.folder / "small.yaml", budget={"trials": 3}, replicates=1)
    assert golfray.run("tune", space, "-q").code == 0
    ended = golfray.run("confirm", "small/2", "small/0", "--seeds=2", "--paired", "--json", "-q")
    assert ended.code == 0, ended
    (document,) = documents_of(ended.out)
    fresh = [[run["seed"] for run in trial["confirmations"]] for trial in document["trials"]]
    assert fresh == [[2337, 2338]] * 2
    assert {run["outcome"] for trial in document["trials"] for run in trial["confirmations"]} == {"scored"}
    (claim,) = documents_of(golfray.run("claim", "small/2", "--vs", "small/0", "--json").out)
    assert claim["objections"] == []
    # Trial 0 was chosen by nobody, so its own score counts as well.
    assert (claim["first"]["n"], claim["second"]["n"]) == (2, 3)
    # The bytes are those that the corpus was counted to have when it was built.
    assert claim["first"]["implied_bytes"] == pytest.approx(claim["second"]["implied_bytes"], rel=1e-6)
    assert claim["notes"] == []
    (compared,) = documents_of(golfray.run("compare", "small/2", "small/0", "--json").out)
    assert "optimizer.matrix_lr" in compared["settings"]
    assert compared["environment"]["device"] == {"first": "cpu", "second": "cpu"}
    assert compared["metrics"]["bpb/roundtrip"]["first"] == claim["first"]["runs"][0]["bpb"]
    (status,) = documents_of(golfray.run("status", "small", "--json").out)
    assert (status["complete"], len(status["trials"])) == (True, 7)
    # Nothing is left of the budget, so the study that was confirmed is not searched on.
    again = golfray.run("tune", "--resume", "small", "-q")
    assert again.code == 0
