"""A study that goes on with other data, another script, or another space."""

import pytest

from golfray.sweep.resume import trials_outside
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
