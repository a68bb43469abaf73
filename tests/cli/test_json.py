"""With --json, standard output is JSON and nothing else, as docs/json.md has it."""

import json
import pathlib
import re

import pytest

from golfray.sweep.events import encode_record
from tests.cli.documented import read_tables
from tests.report.scripted import eventful_study, write_study
from tests.sweep.knob_studies import CHOICES, KnobStudy

ROOT = pathlib.Path(__file__).parents[2]
TABLES = read_tables()


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def documents_of(text):
    """The documents on a verb's standard output, each checked against the page."""
    documents = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    mistakes = [mistake for document in documents for mistake in TABLES.mistakes(document)]
    assert mistakes == []
    return documents


@pytest.fixture(scope="module")
def study(golfray):
    """A study below ./studies, with something printed by a rank."""
    folder = golfray.folder / "studies" / "muon"
    attempt = folder / "trials" / "0001" / "attempt-2"
    attempt.mkdir(parents=True)
    (attempt / "rank-0.log").write_text("golfray: cpu\n")
    lines = "".join(encode_record(event) + "\n" for event in eventful_study())
    (folder / "events.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def knob_study(golfray):
    """A study, not below ./studies, with enough trials to say something of its knobs."""
    study = KnobStudy(CHOICES)
    for number in range(12):
        trained = {"muon__ns_dtype": "float32" if number % 2 else "bfloat16", "muon__ns_steps": 4 + number // 2 % 2}
        study.run(2.0 + 0.1 * (number % 2) - 0.01 * (number // 4), 100.0 + 10 * (number // 4), **trained)
    write_study(golfray.folder / "played", study.script)
    return golfray.folder / "played"


@pytest.fixture(scope="module")
def fast(golfray, study, knob_study, tiny_sets):
    """Verbs that train nothing."""
    return golfray.run_all(
        {
            "status": ["status", "--json"],
            "logs": ["logs", "1", "--json", "-q"],
            "trial": ["show", "trial", "muon/1", "--json"],
            "pack": ["pack", "packed.py", *tiny_sets, "--json", "-v"],
            "import_records": ["import-records", "--json"],
            "knobs": ["show", "knobs", knob_study, "--json"],
            "studies": ["ls", "--json"],
            "stop": ["stop", "muon", "--json"],
            "error": ["status", "mun", "--json"],
        }
    )


@pytest.mark.parametrize(
    "kind", ["status", "logs", "trial", "pack", "import_records", "knobs", "studies", "stop", "error"]
)
def test_one_document_and_the_words_on_standard_error(fast, kind):
    (document,) = documents_of(fast[kind].out)
    assert document["kind"] == kind
    assert fast[kind].code == (2 if kind == "error" else 0)
    assert fast[kind].err != ""


@pytest.mark.slow
def test_train_and_score(golfray, tiny_sets):
    trained = golfray.run("train", "--folder=one", *tiny_sets, "--json")
    (document,) = documents_of(trained.out)
    assert (trained.code, document["outcome"]["kind"]) == (0, "scored"), trained
    assert "step 1/12  loss " in trained.err
    scored = golfray.run("score", "one/final_model.int8.ptz", "--json", "-q")
    (score,) = documents_of(scored.out)
    assert score["bits_per_byte"] == pytest.approx(document["outcome"]["metrics"]["bpb/roundtrip"], abs=2e-5)
    over = golfray.run("train", "--folder=over", *tiny_sets, "--set=cap_bytes=60000", "--json", "-q")
    (document,) = documents_of(over.out)
    assert (over.code, document["outcome"]["kind"]) == (7, "infeasible")
    # Results only: what is on the way to them is left out.
    assert over.err.startswith("infeasible: ")


@pytest.mark.slow
def test_selftest(golfray):
    ended = golfray.run("selftest", "--json")
    (document,) = documents_of(ended.out)
    assert (ended.code, document["missed"]) == (0, 0)
    assert len(document["cases"]) == ended.err.count("\nok ") + 1


def test_the_events_of_a_study_and_its_end_are_on_the_page():
    text = (ROOT / "tests" / "report" / "snapshots" / "documents.jsonl").read_text(encoding="utf-8")
    documents = documents_of(text)
    assert {document["kind"] for document in documents} == {"event", "study"}
    seen = {f"event {document['event']}" for document in documents if document["kind"] == "event"}
    # No trial of it is hopeless: tests/sweep/sim/test_late_check.py has such a log. Its lanes stay what they are:
    # tests/sweep/test_lane_time.py has one in which they change.
    assert seen | {"event progress", "event late_check", "event lanes_changed"} == {
        name for name in TABLES.tables if name.startswith("event ")
    }


def test_every_kind_that_a_verb_prints_is_on_the_page_and_the_other_way_round():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "golfray" / "cli").glob("*.py"))
    printed = set(re.findall(r"\bdocument\(\s*\"(\w+)\"", sources))
    assert printed | {"event"} == TABLES.kinds


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        ({"seed": True}, "trial.seed: True is no integer"),
        ({"told": None}, "trial.told: None is no boolean"),
        ({"surplus": 1}, "trial.surplus: not on the page"),
        ({"schema": "golfray/0"}, "schema 'golfray/0', kind 'trial': not on the page"),
        ({"kind": "trail"}, "schema 'golfray/1', kind 'trail': not on the page"),
        ({"changed": {"stop.steps": {"preset": 1}}}, "trial.changed[stop.steps].trial: is missing"),
    ],
)
def test_a_document_that_is_not_as_the_page_says_is_found_out(fast, change, mistake):
    document = json.loads(fast["trial"].out)
    assert TABLES.mistakes(document | change) == [mistake]
