"""A study that goes on with other data, another script, or another space."""

from pathlib import Path

import pytest

from golfray.sweep.resume import trials_outside
from golfray.sweep.space import load_space
from golfray.sweep.space_diff import changes_since
from golfray.sweep.space_record import space_of
from golfray.sweep.study import Study
from golfray.sweep.study_folder import create_study_folder
from golfray.sweep.trial_record import REPLICATE
from tests.sweep.small_studies import RESUMED


def test_data_that_moved_and_a_script_that_changed_are_what_a_trial_runs_with_again(make_in, synthetic) -> None:
    class Dying(synthetic):
        def events(self, timeout: float) -> list:
            raise SystemExit

    with pytest.raises(SystemExit):
        make_in(RESUMED, Dying()).run()
    executor = synthetic()
    moved = RESUMED.replace("knobs:", "fixed: {data.folder: /new/place}\nknobs:")
    record = make_in(moved, executor, bytes_code=44_000).resume(["data.folder:  -> /new/place"])
    assert executor.submitted[0].job_id == "one-0000-2"
    for job in executor.submitted:
        assert job.settings["data"]["folder"] == "/new/place"
        assert job.settings["bytes_code"] == 44_000
    assert len(record.trials) == 8, "planned points are the same where the data lie elsewhere"


def test_the_sampler_hears_only_of_points_of_the_changed_space(make_in, synthetic, space_at) -> None:
    whole = make_in(RESUMED, synthetic())
    whole.run()
    rates = {trial.number: trial.params["optimizer.matrix_lr"] for trial in whole.record.trials}
    narrow = RESUMED.replace("high: 0.16", "high: 0.08").replace("0.1}", "0.07}").replace("trials: 7", "trials: 9")
    record = make_in(narrow, synthetic()).resume(["narrower"])
    outside = [number for number, rate in rates.items() if rate > 0.08]
    assert outside
    assert [trial.number for trial in record.trials if trial.left_space is not None] == outside
    assert "is outside FloatRange(low=0.02, high=0.08" in record.trials[outside[0]].told_reason
    assert all(trial.params["optimizer.matrix_lr"] <= 0.08 for trial in record.trials[8:])
    # The range is mended: they are points of the space again.
    wide = make_in(RESUMED.replace("trials: 7", "trials: 10"), synthetic()).resume(["wider"])
    assert all(trial.left_space is None for trial in wide.trials)
    assert wide.changes == ["narrower", "wider"]
    assert [trial.told for trial in wide.trials] == [trial.role != REPLICATE for trial in wide.trials]


def test_the_same_parameters_may_be_another_configuration(make, space_at, small) -> None:
    """Without its bound, a momentum is what was drawn and not the smaller of two."""
    record = make().run()
    drawn = {trial.number: trial.params for trial in record.trials if trial.told}
    bounded = {
        number
        for number, params in drawn.items()
        if params["muon.momentum_start"] > 1 - params["1 - muon.momentum_end"] + 1e-6
    }
    assert bounded
    outside = trials_outside(space_at(small.replace(", at_most: muon.momentum_end", "")), record)
    assert {entry["trial"] for entry in outside} == bounded
    assert all(entry["reason"].startswith("muon.momentum_start was 0.") for entry in outside)


DATA = {"folder": "/data/a", "name": "a", "reference": {"uniform": 4.0}, "warning": ""}
PARENT = """\
preset: parameter-golf
scale: laptop
workers: 2
budget: {trials: 4}
replicates: 1
fixed: {model.num_layers: 2}
limits: {score: 300}
first_points: [{optimizer.matrix_lr: 0.1}]
knobs:
  optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}
  muon.ns_steps: {low: 3, high: 6}
scales: {laptop: {muon.ns_steps: {low: 4}}}
"""
CHILD = "extends: parent.yaml\nname: child\nknobs: {optimizer.matrix_lr: {high: 0.2}}\nbudget: {trials: 3}\n"


@pytest.mark.parametrize(
    ("old", "new", "lines", "allowed"),
    [
        ("low: 0.02", "low: 0.03", ["knobs.optimizer.matrix_lr.low: 0.02 -> 0.03"], True),
        ("{low: 4}", "{low: 5}", ["knobs.muon.ns_steps.low: 4 -> 5"], True),
        (
            "  muon.ns_steps: {low: 3, high: 6}\nscales: {laptop: {muon.ns_steps: {low: 4}}}\n",
            "",
            ["knobs.muon.ns_steps: 4..6 -> none"],
            True,
        ),
        ("score: 300", "score: 30", ["limits.score: 300.0 -> 30.0"], True),
        ("score: 300}", "score: 300}\nnodes: {refuse_slower: 2}", ["nodes.refuse_slower: none -> 2.0"], True),
        ("{trials: 4}", "{trials: 4, minutes: 9}", ["budget.minutes: none -> 9.0"], True),
        ("matrix_lr: 0.1}", "matrix_lr: 0.11}", ["first_points.0.optimizer.matrix_lr: 0.1 -> 0.11"], True),
        ("num_layers: 2", "num_layers: 3", ["fixed.model.num_layers: 2 -> 3"], False),
        ("workers: 2", "workers: 1", ["workers: 2 -> 1", "fixed.workers: 2 -> 1"], False),
        # What the child says otherwise, and what this scale does: nothing has changed.
        ("high: 0.16", "high: 0.15", [], True),
        ("{trials: 4}", "{trials: 40}", [], True),
        ("low: 3", "low: 2", [], True),
    ],
)
def test_a_file_that_a_space_extends_may_have_changed(
    synthetic, tmp_path: Path, old: str, new: str, lines: list[str], allowed: bool
) -> None:
    (tmp_path / "parent.yaml").write_text(PARENT)
    (tmp_path / "child.yaml").write_text(CHILD)
    before = load_space(tmp_path / "child.yaml", has_gpu=False)
    facts = {"bytes_code": 50_000, "data": DATA}
    folder = create_study_folder(tmp_path / "study")
    record = Study(before, synthetic(), folder, uniform_bpb=4.0, **facts).run()
    assert old in PARENT
    (tmp_path / "parent.yaml").write_text(PARENT.replace(old, new))
    changes = changes_since(record, load_space(tmp_path / "child.yaml", has_gpu=False), **facts)
    assert sorted(map(str, changes)) == sorted(lines)
    assert all(change.may_be for change in changes) == allowed
    assert changes_since(record, space_of(record, "log"), **facts) == [], "without the file, the log has it all"
