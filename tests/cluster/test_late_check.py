"""A study stops trials on real lanes: ranks that listen end by themselves, deaf ones with their lane."""

import pytest

from golfray.sweep import study as study_module
from golfray.sweep.outcome import Kind
from golfray.sweep.space import load_space
from golfray.sweep.stopping import Finding
from golfray.sweep.study import Study

pytestmark = pytest.mark.slow

SPACE = """\
name: %s
preset: parameter-golf
scale: laptop
budget: {trials: 2}
replicates: 1
stopping: late_check
fixed: {data.folder: %s, data.tokenizer: ""}
first_points: [{optimizer.matrix_lr: 0.1}]
knobs: {optimizer.matrix_lr: {low: 0.02, high: 0.16, log: true}}
"""


@pytest.fixture(scope="module")
def lanes(start_lanes):
    """One lane for both studies."""
    return start_lanes()


@pytest.mark.parametrize("task", ["until_stopped", "deaf"])
def test_what_is_found_hopeless_ends_as_stopped(lanes, tmp_path, monkeypatch, task):
    # The stand-in trains for ever; what a look finds in real curves is tested where curves are.
    found = Finding(share=0.6, expected=2.0, chance=0.0, bar=1.0, known=9)
    monkeypatch.setattr(study_module, "look", lambda record, trial: found if len(trial.curve) == 1 else None)
    (tmp_path / "space.yaml").write_text(SPACE % (task, task))
    space = load_space(tmp_path / "space.yaml", has_gpu=False)
    folder = lanes.folder / task
    folder.mkdir()
    data = {"folder": "", "name": "none", "reference": {}, "warning": None}
    study = Study(space, lanes.executor, folder, bytes_code=50_000, uniform_bpb=4.0, data=data)
    record = study.run()
    assert record.complete
    assert record.end_reason == "budget spent: 2 trials"
    assert record.counts == {"stopped": 2}
    for trial in record.trials:
        (attempt,) = trial.attempts
        assert attempt.outcome.kind is Kind.STOPPED
        assert attempt.outcome.reason == found.words()
        assert attempt.outcome.metrics["train/loss"] > 0
        assert attempt.outcome.phases["train"] > 0
        # Only the one that had to be killed needed its time to be taken from it.
        assert ("sum" in attempt.outcome.metrics) is (task == "until_stopped")
