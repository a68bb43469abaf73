"""The table of ``golfray show knobs``: what is said, and that noise is not printed as knowledge."""

import io
import itertools
import math
from pathlib import Path

import pytest
from rich.console import Console

from golfray.report.knobs import knobs_document, print_knobs
from golfray.sweep.importance import knob_importances
from golfray.sweep.knowledge import known_of
from golfray.sweep.outcome import Kind
from tests.sweep.knob_studies import CHOICES, KnobStudy, knobs_of


def printed(study: KnobStudy, width: int = 140) -> str:
    knobs, record = knobs_of(CHOICES), study.record
    known = known_of(record, knobs)
    enough = len(known.scores) >= 12
    importances = knob_importances(knobs, known.points, known.scores) if enough else None
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_knobs(record, known, importances, console)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def told() -> KnobStudy:
    """float32 is .1 worse and often crashes; scores fall by .2 a factor e of tokens, which vary."""
    study = KnobStudy(CHOICES)
    for dtype, steps, run in itertools.product(("bfloat16", "float32"), (4, 5), range(6)):
        trained = 100.0 + 10 * run
        bpb = 2.0 + (0.1 if dtype == "float32" else 0.0) - 0.2 * math.log(trained / 100) + 0.001 * (-1) ** run
        role = "preset" if not study.script.events[1:] else "sampler"
        study.run(bpb, trained, role, muon__ns_dtype=dtype, muon__ns_steps=steps)
    for _ in range(4):
        study.end(Kind.CRASHED, muon__ns_dtype="float32", muon__ns_steps=4)
    return study


def test_a_row_has_counts_mean_effect_and_rates(told) -> None:
    lines = printed(told).splitlines()
    assert lines[0].split() == ["knob", "ran", "BPB", "effect", "at", "equal", "tokens", "crashed"]
    at = next(index for index, text in enumerate(lines) if text.startswith("muon.ns_dtype"))
    good, bad = lines[at + 1].split(), lines[at + 2].split()
    assert good[:2] == ["bfloat16", "12"]
    assert bad[:2] == ["float32", "16"]
    # Wilson of 4 of 16 and of 0 of 12.
    assert bad[-3:] == ["4/16", "(10-49", "%)"]
    assert good[-3:] == ["0/12", "(0-24", "%)"]
    assert float(bad[3]) == pytest.approx(0.05, abs=0.005)
    assert "importance" in lines[at], "the best five are all of one choice"


def test_the_lines_below_say_what_the_numbers_are(told) -> None:
    text = printed(told)
    assert "additive model of 24 runs" in text
    assert "between seeds: noise unknown" in text
    assert "b = -0.19" in text or "b = -0.20" in text
    assert "no trial was over the cap or diverged" in text
    assert "PED-ANOVA" in text
    (best,) = [line for line in text.splitlines() if line.startswith("best feasible t")]
    assert "with 1.50 times its tokens" in best or "with 1.40 times its tokens" in best
    gain, level = (float(word) for word in best.split() if word[0] in "+-" and word[1].isdigit() and word[1:2] != "-")
    assert gain < -0.05
    assert abs(level) < 0.01, "all of it was tokens"


def test_few_trials_are_said_and_no_numbers_made() -> None:
    study = KnobStudy(CHOICES)
    for number in range(5):
        study.run(2.0 + number, muon__ns_dtype="bfloat16", muon__ns_steps=4 + number % 2)
    text = printed(study)
    assert "no effects: 5 scored runs are too few, 8 are needed" in text
    assert "no importance: 5 scored trials are too few, 12 are needed" in text
    assert "+-" not in text


def test_a_narrow_terminal_loses_columns_and_hears_of_it(told) -> None:
    wide, narrow = printed(told), printed(told, width=50)
    assert "too narrow" not in wide
    assert "too narrow for: at equal tokens, crashed" in " ".join(narrow.split())
    table = narrow.split("effect: BPB")[0]
    assert all(len(line) <= 50 for line in table.splitlines())


def test_the_document_has_what_the_table_leaves_out(told) -> None:
    knobs, record = knobs_of(CHOICES), told.record
    known = known_of(record, knobs)
    importances = knob_importances(knobs, known.points, known.scores)
    document = knobs_document(record, Path("studies/muon"), known, importances)
    dtype, steps = document["knobs"]
    assert dtype["chance"] <= 0.05 < steps["chance"]
    assert dtype["parts"][1]["crashed"]["count"] == 4
    assert len(document["at_tokens"]) == document["runs"] == 24
    assert document["why_no_effects"] is document["why_no_slope"] is document["why_no_importance"] is None
