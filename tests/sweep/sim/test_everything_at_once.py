"""Stopping rules, extra seeds, points asked again, money and mishaps in one study, whose driver is lost on the way."""

import dataclasses
import json
import random
from pathlib import Path

import pytest

from golfray.report.documents import study_document
from golfray.sweep.budget import BudgetTooSmall
from golfray.sweep.choosing import choose
from golfray.sweep.events import LOG_NAME, read_events
from golfray.sweep.records import StudyRecord
from golfray.sweep.space import Space, load_space
from golfray.sweep.trial_record import CONFIRM, EXTRA_SEED, FIRST_POINT, PRESET_8BIT
from golfray.sweep.work_left import asked_trials
from tests.cli.documented import read_tables
from tests.sweep.sim.conftest import SPACE, START
from tests.sweep.sim.test_never_over_budget import USD, Case, booked_by

# Few enough points that a sampler finds some again.
FEW = (
    SPACE.partition("knobs:")[0]
    .replace("stop.steps: 120", "stop.steps: 6000")
    .replace("log_points: 3", "log_points: 9")
    + """\
knobs:
  optimizer.matrix_lr: {choices: [0.02, 0.04, 0.08, 0.3]}
  muon.momentum_end: {choices: [0.8, 0.9, 0.95]}
  export.bits_mlp: {low: 6, high: 8}
"""
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Space:
    file = tmp_path_factory.mktemp("space") / "space.yaml"
    file.write_text(FEW)
    return load_space(file, has_gpu=False)


def case_of(base: Space, number: int) -> Case:
    case, draw = Case.of([base], number), random.Random(f"rules {number}")
    budget = dataclasses.replace(case.space.budget, trials=draw.choice([15, 30]), extra_seeds=draw.choice([3, 8]))
    rules = {"stopping": draw.choice(["late_check", "rungs"]), "sampler": draw.choice(["random", "tpe"])}
    return dataclasses.replace(case, space=dataclasses.replace(case.space, budget=budget, replicates=3, **rules))


def check(folder: Path, space: Space) -> None:
    events = list(read_events(folder / LOG_NAME))
    record, budget = StudyRecord.from_events(events), space.budget
    assert max(booked_by(events)) <= USD
    assert asked_trials(record) <= budget.trials
    assert sum(trial.role == EXTRA_SEED for trial in record.trials) <= budget.extra_seeds
    ran = [
        (trial.configuration, trial.seed)
        for trial in record.trials
        if trial.configuration is not None and not trial.is_refused and trial.role not in (PRESET_8BIT, FIRST_POINT)
    ]
    assert len(set(ran)) == len(ran)
    for standing in choose(record).standings:
        assert standing.trial.share == 1.0
        assert standing.trial.bytes_total <= record.cap_bytes
        assert standing.trial.role not in (EXTRA_SEED, CONFIRM)
    tables = read_tables()
    documents = [{"kind": "event", **event} for event in events]
    documents.append({"kind": "study", **study_document(record, folder), "exit_code": 0})
    for document in documents:
        assert list(tables.mistakes(json.loads(json.dumps({"schema": "golfray/1", **document})))) == []


@pytest.mark.parametrize("number", [1, 3, *(pytest.param(case, marks=pytest.mark.slow) for case in range(4, 24))])
def test_all_of_it_holds_whoever_drives(base, tmp_path, number):
    case, folder = case_of(base, number), tmp_path / "study"
    try:
        case.study(folder, START).run()
    except BudgetTooSmall:
        return
    check(folder, case.space)
    for _ in range(2):
        lines = (folder / LOG_NAME).read_bytes().splitlines(keepends=True)
        (folder / LOG_NAME).write_bytes(b"".join(lines[: case.draw.randrange(len(lines) // 2, len(lines) + 1)]))
        *_, last = read_events(folder / LOG_NAME)
        try:
            case.study(folder, last["time"] + case.draw.choice([0.0, 30.0, 5000.0])).resume()
        except BudgetTooSmall:
            return
        check(folder, case.space)
