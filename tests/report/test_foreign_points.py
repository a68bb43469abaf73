"""Foreign points wherever a study is described: apart from its trials."""

from pathlib import Path

from golfray.report.configuration import configuration_document, configuration_lines
from golfray.sweep.observation import Observation, Observations, write_observations
from golfray.sweep.space import load_space
from golfray.tracking.projection import study_note, study_params
from tests.report.scripted import SPACE, Script

TEXT = """\
name: one
preset: parameter-golf
scale: full
budget: {trials: 4}
knobs: {optimizer.matrix_lr: {low: 0.008, high: 0.08, log: true}}
warm_start: theirs.json
"""


def test_show_config_lists_them_with_what_is_told(tmp_path: Path) -> None:
    theirs = Observation("R05", "2026-03-18_LowerLR", 1.195, 4, None, {"optimizer.matrix_lr": 0.02})
    write_observations(tmp_path / "theirs.json", Observations("here", 1.2, 4, (theirs,)))
    (tmp_path / "space.yaml").write_text(TEXT)
    space = load_space(tmp_path / "space.yaml", has_gpu=False)
    lines = configuration_lines(space.base, space, described=False)
    # -.005 * .0056^2 / (.0056^2 + .00077^2 / 2) = -.0049532
    told = "-0.0050 +-0.0005 BPB, told as -0.0050 of trial 0 (optimizer.matrix_lr 0.02)"
    assert f"foreign point of R05: {told}" in lines
    (point,) = configuration_document(space.base, space)["space"]["warm_start"]
    assert (point["records"], point["runs"]) == (["R05"], 4)


def started(**space) -> dict:
    script = Script()
    script.start()
    (event,) = script
    return {**event, "space": {**SPACE, **space}}


def test_mlflow_has_their_number_and_no_run_of_theirs() -> None:
    point = {"records": ["R05", "R07"], "values": {}, "difference": -0.005, "noise": 0.005, "runs": 4}
    warm, cold = started(warm_start=[point]), started()
    assert study_params(warm)["warm_start"] == "foreign points: 1"
    assert "The sampler was told of points at which others ran (R05, R07): no runs here." in study_note(warm)
    assert "warm_start" not in study_params(cold)
    assert "others ran" not in study_note(cold)
