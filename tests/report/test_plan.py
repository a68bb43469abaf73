import dataclasses
import json
from pathlib import Path

import pytest

from golfray.report.plan import Surroundings, plan_document, plan_lines
from golfray.sweep.budget import Price, StudyBudget
from golfray.sweep.costs import Costs
from golfray.sweep.disk_room import MIB, DiskNeed, StudyDisk
from golfray.sweep.forecast import Forecast
from golfray.sweep.plan import CorpusFacts, ForeseenPoint, StudyPlan, TimePlan

COSTS = Costs(
    open_s=9.5,
    lanes_s=14.0,
    phases={"data": 0.0, "compile": 1.0, "train": 15.6, "validate": 2.0, "export": 0.04, "score": 2.0},
    compile_first_s=7.0,
    handover_s=0.5,
    close_s=7.0,
    steps=155,
    sources=("measured here just now", "assumed as measured earlier"),
)
PARAMS = {"optimizer.matrix_lr": 0.04, "export.bits_mlp": 6}
PLAN = StudyPlan(
    study="muon",
    preset="parameter-golf",
    scale="laptop",
    workers=2,
    cap_bytes=339_000,
    bytes_code=44_819,
    budget=StudyBudget(trials=4),
    roles=("preset", "preset_8bit", "replicate", "replicate", "sampler", "sampler"),
    lanes=1,
    time=TimePlan(6, COSTS, limited=False),
    disk=StudyDisk(DiskNeed({"checkpoints": 8 * MIB, "artifacts": 4 * MIB}, 150 * MIB), 6, 1, True, 2 * MIB),
    points=(
        ForeseenPoint(0, "preset", PARAMS, 331_000, 8_000, 11_000, 0.766),
        ForeseenPoint(1, "preset_8bit", {**PARAMS, "export.bits_mlp": 8}, 388_000, -49_000, 13_000, 0.0001),
        ForeseenPoint(2, "sampler", PARAMS, 300_000, 39_000, 9_000, 0.99999),
        ForeseenPoint(3, "sampler", PARAMS, 350_000, -11_000, 6_000, 0.034, too_large=True),
        ForeseenPoint(4, "sampler", PARAMS, refused="kv heads"),
    ),
    corpus=CorpusFacts("kjv", 1_264_581, 81_612, (), built=True),
    passes=0.251,
    price=Price(3.6, "--usd-per-hour"),
    forecast=Forecast(190.0, 200.0, 0.28, 0.29, known=200),
)


@pytest.fixture
def here(tmp_path) -> Surroundings:
    fidelity = {"device": "cpu", "dtype": "float32", "compiled": True, "workers": 2, "threads": 1, "stop": "wallclock"}
    return Surroundings(
        ["1 trial at once: 2 CPUs free"],
        fidelity,
        tmp_path / "studies" / "muon",
        Path("/tmp"),
        taken=False,
        store="http://tracker.example.org",
    )


def test_what_a_person_reads(here) -> None:
    lines = plan_lines(PLAN, here)
    known = [line for line in lines if " free)" not in line]
    assert known == [
        "dry run: nothing is started and nothing is written",
        "study muon: parameter-golf at scale laptop, cap 339,000 bytes of code and model",
        "6 trials: preset, preset_8bit, 2 replicate, 2 sampler (budget: 4 trials without replicates)",
        "trials run as: cpu, float32, compiled, 2 rank(s) of 1 thread(s), wallclock",
        "1 trial at once: 2 CPUs free",
        "time: about 2 min 43 s in all, 6 rounds of one trial",
        "  start: 9.5 s to Ray, 14.0 s to the first trial",
        "  a trial: 21.1 s = data 0.0, compile 1.0, train 15.6, validate 2.0, export 0.0, score 2.0, to the next 0.5",
        "  the first of a lane: 6.0 s more, to compile",
        "  end: 7.0 s",
        "  measured here just now",
        "  assumed as measured earlier",
        "  to the last trial's end: P50 3 min 10 s, P90 3 min 20 s",
        "cost: P50 0.28, P90 0.29 USD; a node costs 3.6 USD an hour (--usd-per-hour)",
        "  for 6 trials, one of them made once more; each further attempt at one needs 2.1 MB",
        "MLflow: http://tracker.example.org",
        "data: about 155 steps a trial are 0.25 passes over the 1,264,581 training tokens of kjv",
        "expected bytes of the first trials, 44,819 of them code; +- is what is usually missed by",
        "  t000 preset: about 331,000 +-11,000, margin +8,000, fits with a chance of 77 % "
        "(optimizer.matrix_lr 0.04, export.bits_mlp 6)",
        "  t001 preset_8bit: about 388,000 +-13,000, margin -49,000, "
        "fits with a chance of less than 0.1 % (export.bits_mlp 8)",
        "  t002 sampler: about 300,000 +-9,000, margin +39,000, fits with a chance of more than 99.9 % (as trial 0)",
        "  t003 sampler: about 350,000 +-6,000, margin -11,000, fits with a chance of 3 %, too little to be tried "
        "(as trial 0)",
        "  t004 sampler: refused: kv heads (as trial 0)",
    ]
    study, temporary = (line for line in lines if " free)" in line)
    assert study.startswith(f"disk: at most 12.6 MB in {here.study_folder} (")
    assert study.endswith("free): checkpoints 8.4 MB, artifacts 4.2 MB")
    assert temporary.startswith("  and 157.3 MB in /tmp while it runs (")


def test_a_folder_that_holds_a_study_is_named(here) -> None:
    taken = dataclasses.replace(here, taken=True)
    new = set(plan_lines(PLAN, taken)) - set(plan_lines(PLAN, here))
    assert new == {
        f"{here.study_folder} holds a study already: to start this one, give another folder with --study-dir"
    }
    assert plan_document(PLAN, taken)["disk"]["study_folder_taken"]


def test_trials_that_nothing_but_time_limits_are_no_upper_bound(here) -> None:
    need = dataclasses.replace(PLAN.disk.need, elsewhere=5 * MIB)
    disk = dataclasses.replace(PLAN.disk, need=need, trials=30, retries=3, bounded=False)
    lines = plan_lines(dataclasses.replace(PLAN, disk=disk), here)
    (place,) = (number for number, line in enumerate(lines) if line.startswith("disk: about 12.6 MB in "))
    assert lines[place + 1 : place + 3] == [
        "  for 30 trials, 3 of them made once more; each further attempt at one needs 2.1 MB; nothing but time limits "
        "their number",
        "  and 5.2 MB in MLflow's store, http://tracker.example.org",
    ]
    assert not any("at most" in line for line in lines)


def test_reading_the_text_more_than_once_is_a_warning(here) -> None:
    assert not any("warning" in line for line in plan_lines(PLAN, here))
    lines = plan_lines(dataclasses.replace(PLAN, passes=1.94), here)
    assert "  warning: every trial reads its training text 1.9 times" in lines


def test_what_only_time_limits_says_so(here) -> None:
    budget = StudyBudget(minutes=30.0)
    plan = dataclasses.replace(PLAN, budget=budget, time=TimePlan(6, COSTS, limited=True), lanes=2)
    lines = plan_lines(plan, here)
    assert "6 trials, as time allows: preset, preset_8bit, 2 replicate, 2 sampler (budget: 30 minutes)" in lines
    assert any(line.endswith("6 rounds of 2 trials") for line in lines)


def test_a_corpus_that_is_not_built_yet_is_named(here) -> None:
    plan = dataclasses.replace(PLAN, corpus=dataclasses.replace(PLAN.corpus, built=False))
    assert any(line.endswith("tokens of kjv (not built yet: its known counts)") for line in plan_lines(plan, here))


def test_nothing_is_said_of_compiling_where_nothing_compiles(here) -> None:
    eager = dataclasses.replace(COSTS, compile_first_s=COSTS.phases["compile"])
    plan = dataclasses.replace(PLAN, time=TimePlan(6, eager, limited=False))
    assert not any("first of a lane" in line for line in plan_lines(plan, here))


def test_what_a_program_reads(here) -> None:
    document = json.loads(json.dumps(plan_document(PLAN, here), allow_nan=False))
    assert document["trials"] == {"count": 6, "roles": list(PLAN.roles), "limited_by_time": False}
    assert document["lanes"] == {"count": 1, "workers": 2, "describe": ["1 trial at once: 2 CPUs free"]}
    parts = document["time"]
    first = parts["compile_first_s"] - parts["phases_s"]["compile"]
    parts_s = parts["open_s"] + parts["lanes_s"] + parts["rounds"] * parts["trial_s"] + first + parts["close_s"]
    assert parts["total_s"] == pytest.approx(parts_s)
    assert document["disk"]["study_bytes"] == 12 * MIB
    assert document["disk"]["study_free_bytes"] > 0
    assert (document["disk"]["trials"], document["disk"]["retries"], document["disk"]["bounded"]) == (6, 1, True)
    assert document["data"] == {
        "corpus": "kjv",
        "built": True,
        "train_tokens": 1_264_581,
        "steps": 155,
        "passes": 0.251,
    }
    assert document["points"][1]["margin"] == -49_000
    assert document["points"][0]["fit_probability"] == 0.766
    assert document["points"][3]["too_large"]
    assert document["points"][4]["bytes_total"] is None
