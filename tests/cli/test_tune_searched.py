"""A study with export.search on: each trial's value is the best export of its own weights."""

import json

import pytest

from golfray.core.settings import ExportSettings, RunSettings
from golfray.ship.packer import bytes_code
from tests.cli.documented import read_tables

pytestmark = pytest.mark.slow

ROOM = 20_000


@pytest.fixture(scope="module")
def searched(golfray, write_space):
    """Two trials by ``golfray tune`` in a lane of two ranks, and one by ``golfray train``, as far as they have come."""
    cap = bytes_code(RunSettings(export=ExportSettings(format="flat"))) + ROOM
    fixed = {"export.format": "flat", "export.search": 5, "cap_bytes": cap}
    space = write_space(
        golfray.folder / "searched.yaml",
        fixed=fixed,
        budget={"trials": 2},
        replicates=1,
        knobs={"optimizer.matrix_lr": {"low": 0.01, "high": 0.1, "log": True}},
    )
    ended = golfray.run("tune", space)
    assert (ended.code, ended.err) == (0, ""), ended
    folder = golfray.folder / "studies" / "searched"
    return cap, folder, [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_every_trial_is_worth_its_chosen_export(searched) -> None:
    cap, folder, log = searched
    outcomes = {event["trial"]: event["outcome"] for event in log if event["event"] == "attempt_ended"}
    assert len(outcomes) == 2
    for trial, outcome in outcomes.items():
        phases = [event["phase"] for event in log if event["event"] == "phase" and event["trial"] == trial]
        assert phases == ["data", "compile", "train", "validate", "search", "export", "score"]
        assert list(outcome["phases"]) == phases
        assert outcome["kind"] == "scored"
        search = outcome["search"]
        assert search["tried"] >= 5
        fitting = [each for each in search["front"] if each["bytes"] <= ROOM]
        assert outcome["metrics"]["bytes/model"] == fitting[-1]["bytes"]
        assert outcome["metrics"]["bytes/total"] <= cap
        left = json.loads((folder / "trials" / f"{trial:04d}" / "attempt-1" / "settings.json").read_text())
        assert left["export"] == search["export"]
    asked = [event["settings"]["export"]["search"] for event in log if event["event"] == "trial_asked"]
    assert asked == [5, 5]


def test_the_artifact_scores_again_as_it_did(searched, golfray) -> None:
    _, folder, log = searched
    outcome = next(event["outcome"] for event in log if event["event"] == "attempt_ended" and event["trial"] == 0)
    scored = golfray.run("score", "--json", folder / "trials" / "0000" / "attempt-1" / outcome["artifact"])
    assert scored.code == 0, scored
    document = json.loads(scored.out)
    assert document["bits_per_byte"] == pytest.approx(outcome["metrics"]["bpb/roundtrip"], abs=2e-5)
    assert document["bytes_code"] + document["bytes_model"] == outcome["metrics"]["bytes/total"]


def test_what_ships_has_the_chosen_export(searched, golfray) -> None:
    cap, folder, _ = searched
    settings = folder / "trials" / "0001" / "attempt-1" / "settings.json"
    packed = golfray.run("pack", "train_gpt.py", "--settings", settings)
    assert packed.code == 0, packed
    assert f"{cap - ROOM:,} bytes of code, of a cap of {cap:,}" in packed.out
    export = json.dumps(json.loads(settings.read_text())["export"], separators=(",", ":"))
    assert export in (golfray.folder / "train_gpt.py").read_text()
    refused = golfray.run("pack", "other.py", "--scale=laptop", "--set=export.format=flat", "--set=export.search=5")
    assert refused.code == 2
    assert "export.search is done after training, by golfray; what ships is one export" in refused.one_line()


def test_a_trial_says_what_was_chosen(searched, golfray) -> None:
    _, _, log = searched
    outcome = next(event["outcome"] for event in log if event["event"] == "attempt_ended" and event["trial"] == 1)
    said = golfray.run("show", "trial", "searched/1")
    assert said.code == 0, said
    assert outcome["search"]["words"] in said.out
    assert "front.json" in said.out
    document = json.loads(golfray.run("show", "trial", "searched/1", "--json").out)
    assert document["attempts"][0]["outcome"]["search"] == outcome["search"]
    assert read_tables().mistakes(document) == []
