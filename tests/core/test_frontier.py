"""A trial with averaged weights and sliding windows: what is exported, what is measured, what ends it."""

import json
import pathlib

import pytest
import torch

from golfray.core.artifact import unpack_artifact
from golfray.core.frontier import FrontierParts
from golfray.core.quantize import dequantize_state
from golfray.core.settings import beyond_baseline
from golfray.core.train_frontier import run_frontier_trial
from golfray.core.trial import CHECKPOINT_NAME, Parts, run_trial

ARTIFACT = "final_model.int8.ptz"


@pytest.fixture(scope="module")
def both(tiny_settings, tmp_path_factory):
    """The same trial without and with averaging; with it, its sliding windows too."""
    from golfray.core.gang import Gang

    alone = Gang(rank=0, world_size=1, device=torch.device("cpu"))
    folder = tmp_path_factory.mktemp("frontier")
    plain = run_trial(tiny_settings(), alone, folder / "plain")
    settings = tiny_settings(averaging={"method": "ema", "ema_window_share": 0.2}, evaluation={"sliding_stride": 24})
    heard: list[str] = []
    averaged = run_frontier_trial(settings, alone, folder / "averaged", None, heard.append)
    return plain, averaged, heard, folder


def test_the_live_weights_are_scored_and_the_averaged_ones_are_exported(both) -> None:
    plain, averaged, _, folder = both
    assert averaged["kind"] == "scored"
    # Training does not notice that it is averaged.
    assert averaged["metrics"]["bpb/live"] == plain["metrics"]["bpb/prequant"]
    assert averaged["metrics"]["val_loss/live"] == plain["metrics"]["val_loss/prequant"]
    assert averaged["metrics"]["bpb/prequant"] != averaged["metrics"]["bpb/live"]
    assert "bpb/live" not in plain["metrics"]
    saved = torch.load(folder / "averaged" / CHECKPOINT_NAME, weights_only=True)
    live = torch.load(folder / "plain" / CHECKPOINT_NAME, weights_only=True)
    shipped = dequantize_state(unpack_artifact((folder / "averaged" / ARTIFACT).read_bytes()))
    for name in saved:
        error = (shipped[name] - saved[name]).abs().max()
        assert error <= 0.01 * saved[name].abs().max()
    distance = [(saved[name] - live[name]).abs().max() for name in saved]
    assert max(distance) > 1e-3


def test_sliding_windows_are_a_phase_and_a_metric_of_their_own(both) -> None:
    plain, averaged, heard, _ = both
    order = ["data", "compile", "train", "validate", "export", "score"]
    assert list(plain["phases"]) == order
    assert heard == list(averaged["phases"]) == [*order, "sliding"]
    metrics = averaged["metrics"]
    assert metrics["sliding/scored_share"] == 1.0
    assert 0 < abs(metrics["bpb/sliding"] - metrics["bpb/roundtrip"]) < 0.1
    assert metrics["bpb/sliding"] / metrics["val_loss/sliding"] == pytest.approx(
        metrics["bpb/roundtrip"] / metrics["val_loss/roundtrip"]
    )


def test_windows_that_take_too_long_leave_the_score_alone(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    settings = tiny_settings(stop={"steps": 2}, evaluation={"sliding_stride": 1, "sliding_seconds": 1e-6})
    result = run_frontier_trial(settings, alone, tmp_path)
    assert result["kind"] == "scored"
    assert 0.0 <= result["metrics"]["sliding/scored_share"] < 1.0
    assert "bpb/roundtrip" in result["metrics"]
    assert "bpb/sliding" not in result["metrics"]
    assert json.loads((tmp_path / "result.json").read_text()) == result


def test_too_few_snapshots_leave_the_live_weights_and_say_so(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    settings = tiny_settings(
        stop={"steps": 3}, averaging={"method": "swa", "swa_start_share": 0.9, "swa_every_share": None}
    )
    metrics = run_frontier_trial(settings, alone, tmp_path)["metrics"]
    assert metrics["averaging/snapshots"] == 0.0
    assert metrics["bpb/prequant"] == metrics["bpb/live"]


@pytest.mark.parametrize(
    "asked",
    [{"averaging": {"method": "ema"}}, {"evaluation": {"sliding_stride": 8}}, {"export": {"format": "flat"}}],
    ids=["averaging", "sliding", "export"],
)
def test_the_baseline_refuses_what_it_would_ignore(asked, tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    settings = tiny_settings(**asked)
    (path,) = beyond_baseline(settings)
    with pytest.raises(ValueError, match=rf"golfray\.core\.train_frontier must run \['{path}'\]"):
        run_trial(settings, alone, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_frontier_without_wishes_is_the_baseline(both, tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    _, _, _, folder = both
    assert beyond_baseline(tiny_settings()) == []
    run_frontier_trial(tiny_settings(), alone, tmp_path)
    assert (tmp_path / ARTIFACT).read_bytes() == (folder / "plain" / ARTIFACT).read_bytes()


def test_steps_of_a_trial_come_in_their_order(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    """What a further part of a trial can rely on, such as a calibration in a phase of its own."""
    calls: list[str] = []

    class Calibrated(FrontierParts):
        def begin(self, model) -> None:
            calls.append("begin")

        def after_step(self, steps: int, seconds: float) -> None:
            calls.append(f"step {steps}")

        def end(self, score) -> dict[str, float]:
            calls.append("end")
            return {"train/extra": score().loss}

        def calibrate(self, stream, enter) -> None:
            enter("calibrate")
            calls.append("calibrate")

        def export_state(self, state, export) -> bytes:
            calls.append("export")
            return super().export_state(state, export)

        def load_artifact(self, content: bytes) -> dict[str, torch.Tensor]:
            calls.append("load")
            return super().load_artifact(content)

        def evaluate(self, validation, table, enter) -> dict[str, float]:
            calls.append("evaluate")
            return {"bpb/further": 1.0}

    settings = tiny_settings(stop={"steps": 2})
    result = run_trial(settings, alone, tmp_path, parts=Calibrated(settings, alone))
    assert calls == ["begin", "step 1", "step 2", "end", "calibrate", "export", "load", "evaluate"]
    assert list(result["phases"]) == ["data", "compile", "train", "validate", "calibrate", "export", "score"]
    assert result["metrics"]["train/extra"] == result["metrics"]["val_loss/prequant"]
    assert result["metrics"]["bpb/further"] == 1.0


def test_training_may_be_told_to_leave_time(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    """The loop goes by the settings that a part gives it, the files by the trial's own."""

    class Shorter(Parts):
        def training_settings(self, settings):
            return tiny_settings(stop={"steps": 5})

    result = run_trial(tiny_settings(), alone, tmp_path, parts=Shorter())
    assert result["metrics"]["train/steps"] == 5.0
    assert json.loads((tmp_path / "settings.json").read_text())["stop"]["steps"] == 12
