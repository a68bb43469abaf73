"""A lane runs, for each trial's settings, what is packed for them."""

import pytest

from golfray.cluster.entries import load_run, run_of
from golfray.core.settings import AveragingSettings, EvaluationSettings, ExportSettings, RunSettings
from golfray.ship.launch import entry_of
from golfray.ship.modules import recipe_of
from golfray.ship.packer import pack


@pytest.mark.parametrize(
    "settings",
    [
        RunSettings(),
        RunSettings(averaging=AveragingSettings(method="swa")),
        RunSettings(evaluation=EvaluationSettings(sliding_stride=64)),
        RunSettings(export=ExportSettings(format="flat")),
    ],
    ids=["baseline", "averaging", "sliding", "flat"],
)
def test_a_lane_runs_what_is_packed(settings: RunSettings) -> None:
    module, _, function = run_of(settings).partition(":")
    assert function == recipe_of(settings).run
    assert module in pack(settings).modules
    assert load_run(run_of(settings)).__module__ == module


def test_a_search_is_run_by_what_does_not_ship() -> None:
    settings = RunSettings(export=ExportSettings(format="flat", search=200))
    run = load_run(run_of(settings))
    assert run.__name__ == "run_searched_trial"
    assert run.__module__ == entry_of(settings) == "golfray.sweep.searched_trial"
