"""`claim` and `compare` as they are typed."""

import json

import pytest

from golfray.sweep.events import encode_record
from tests.cli.test_json import documents_of
from tests.report.scripted import plain_study

REFUTED = {
    "name": "transformed shards",
    "text": {"name": "fineweb-val"},
    "evaluation": "phased TTT",
    "fidelity": {"device": "H100", "workers": 8, "stop": "wallclock", "budget": "600 s"},
    "tokens": 47_851_520,
    "runs": [{"seed": 42, "bpb": 1.00692894, "val_loss": 2.40073153}],
}


@pytest.fixture(scope="module")
def ends(golfray):
    """What each says of published rows, of a file, and of a study below ./studies."""
    folder = golfray.folder / "studies" / "muon"
    folder.mkdir(parents=True)
    lines = "".join(encode_record(event) + "\n" for event in plain_study())
    (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    (golfray.folder / "refuted.json").write_text(json.dumps(REFUTED))
    (golfray.folder / "empty.json").write_text("{}")
    commands = {
        "identical": ["claim", "R41", "--vs", "R40"],
        "identical --json": ["claim", "R41", "--vs=R40", "--json"],
        "trials": ["claim", "muon/6", "--vs", "0"],
        "trials --json": ["claim", "muon/6", "--vs", "0", "--json", "-q"],
        "compare": ["compare", "6", "t000"],
        "compare --json": ["compare", "6", "t000", "--json"],
        "compare rows": ["compare", "R41", "R40"],
        "compare rows --json": ["compare", "R44", "R40", "--json"],
        "off the invariant": ["claim", "refuted.json", "--vs", "R45"],
        "other evaluation": ["claim", "R44", "--vs", "R33"],
        "another way": ["claim", "R44", "--vs", "R45", "--evaluation", "sideways"],
        "no row": ["claim", "R43", "--vs", "R40"],
        "no file": ["claim", "absent.json", "--vs", "R40"],
        "no scores": ["claim", "empty.json", "--vs", "R40"],
        "other data": ["claim", "muon/6", "--vs", "R04"],
    }
    before = {path: path.stat().st_mtime_ns for path in golfray.folder.rglob("*")}
    ended = golfray.run_all(commands)
    assert {path: path.stat().st_mtime_ns for path in golfray.folder.rglob("*")} == before
    return ended


def test_the_two_records_that_differ_in_seeds_only(ends):
    lines = ends["identical"].out.splitlines()
    assert (ends["identical"].code, ends["identical"].err) == (0, "")
    assert lines[0] == "is R41 below R40? (phased TTT; device H100, workers 8, stop wallclock, budget 600 s)"
    assert sum(line.startswith("  seed ") for line in lines) == 7 + 3
    assert "difference: -0.00072 BPB, -0.00157 nats per token: better" in lines
    assert (
        "rule frontier, below the standing row at p < 0.25: met by the numbers only (Welch p 0.106, "
        "with the fidelity's noise p 0.090)"
    ) in lines
    assert "against it: R41 and R40 are identical in every resolved setting: only seeds differ" in lines
    (document,) = documents_of(ends["identical --json"].out)
    assert (document["identical"], [rule["met"] for rule in document["rules"]]) == (True, [False, False])


def test_a_trial_without_fresh_seeds(ends):
    lines = ends["trials"].out.splitlines()
    assert "difference: -0.07593 BPB: better" in lines
    assert [line for line in lines if line.startswith("  luck of the best of 6: ")]
    assert (
        "against it: the only score of muon/t006 is the one it was chosen by: `golfray confirm muon/t006`"
        in "".join(lines)
    )
    (document,) = documents_of(ends["trials --json"].out)
    assert (document["first"]["chosen_of"], document["second"]["n"]) == (6, 3)
    assert ends["trials --json"].err.startswith("is muon/t006 below muon/t000?")


def test_two_trials_side_by_side(ends):
    lines = ends["compare"].out.splitlines()
    assert lines[0].split() == ["setting", "muon/t006", "muon/t000"]
    assert ["optimizer.matrix_lr", "0.0512", "0.04"] in [line.split() for line in lines]
    assert ["bpb/roundtrip", "1.7778", "1.8512", "+0.0734"] in [line.split() for line in lines]
    assert lines[-1].startswith("the same: outcome scored, seed 1337, driver's host workstation, lane lane-0")
    (document,) = documents_of(ends["compare --json"].out)
    assert set(document["settings"]) == {"optimizer.matrix_lr", "muon.weight_decay", "schedule.warmdown_share"}
    assert document["identical"] is False


def test_published_rows_side_by_side(ends):
    assert ends["compare rows"].out.startswith("R41 and R40 are identical in every resolved setting but the seed\n")
    (document,) = documents_of(ends["compare rows --json"].out)
    assert (document["identical"], document["settings"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("off the invariant", "transformed shards: seed 42: loss and score imply 164,594,398 bytes, but fineweb-val"),
        ("other evaluation", "different evaluation: R44 was scored phased TTT, R33 sliding + SGD TTT; score both"),
        ("no row", "R43: no published row of that name; did you mean R"),
        ("no file", "absent.json: cannot be read: No such file or directory"),
        ("no scores", "empty.json name: Field required"),
        (
            "other data",
            "different data: muon/t006 was scored on kjv, R04 on fineweb-val, and their byte counts are not",
        ),
    ],
)
def test_refused(ends, name, message):
    assert (ends[name].code, ends[name].out) == (2, "")
    assert ends[name].one_line().startswith(f"golfray: {message}")


def test_an_evaluation_that_there_is_not(ends):
    assert ends["another way"].code == 2
    assert "--evaluation must be plain or sliding, got sideways" in " ".join(ends["another way"].err.split())
