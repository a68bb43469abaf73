"""One trial from settings to score, and every way in which it can end."""

import json
import math
import pathlib

import pytest
import torch

from golfray.core.artifact import sha256_hex
from golfray.core.settings import settings_from_dict, settings_to_json
from golfray.core.trial import run_trial

ARTIFACT = "final_model.int8.ptz"


def strict(text: str):
    """Parse JSON that has no NaN and no Infinity."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_scored_trial_writes_what_it_says(tiny_settings, alone, tmp_path: pathlib.Path, tiny_corpus) -> None:
    points: list[dict] = []
    settings = tiny_settings(bytes_code=1000, cap_bytes=200_000)
    result = run_trial(settings, alone, tmp_path, lambda point: points.append(point))
    metrics = result["metrics"]
    assert (result["kind"], result["artifact"]) == ("scored", ARTIFACT)
    content = (tmp_path / ARTIFACT).read_bytes()
    assert result["artifact_sha256"] == sha256_hex(content)
    assert metrics["bytes/model"] == len(content)
    assert metrics["bytes/total"] == len(content) + 1000
    assert metrics["bytes/margin"] == 200_000 - len(content) - 1000
    assert metrics["train/steps"] == 12
    assert metrics["train/tokens"] == 12 * 512
    assert metrics["train/data_passes"] == pytest.approx(12 * 512 / tiny_corpus.train_tokens)
    assert list(result["phases"]) == ["data", "compile", "train", "validate", "export", "score"]
    assert result["fidelity"]["stop"] == "steps"
    uniform = math.log(tiny_corpus.vocab_size)
    assert metrics["val_loss/roundtrip"] < uniform
    assert metrics["bpb/roundtrip"] != metrics["bpb/prequant"]
    assert strict((tmp_path / "result.json").read_text()) == result
    curve = [strict(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert curve == points
    assert [point["step"] for point in curve] == list(range(1, 13))
    assert len(strict((tmp_path / "clock.json").read_text())["readings_s"]) == 13
    assert settings_from_dict(strict((tmp_path / "settings.json").read_text())) == settings
    assert not list(tmp_path.glob("*.part"))


def artifact_bytes(settings, alone, folder: pathlib.Path) -> bytes:
    assert run_trial(settings, alone, folder)["kind"] == "scored"
    return (folder / ARTIFACT).read_bytes()


def test_same_trial_twice_and_after_others_is_the_same_bytes(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    first = artifact_bytes(tiny_settings(), alone, tmp_path / "1")
    other = artifact_bytes(tiny_settings(runtime={"seed": 7}), alone, tmp_path / "2")
    torch.rand(17)
    assert artifact_bytes(tiny_settings(), alone, tmp_path / "3") == first != other


def test_warm_up_leaves_no_trace(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    cold = artifact_bytes(tiny_settings(schedule={"warmup_steps": 0}), alone, tmp_path / "0")
    warm = artifact_bytes(tiny_settings(schedule={"warmup_steps": 3}), alone, tmp_path / "3")
    assert cold == warm


def test_over_the_cap_is_infeasible(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    settings = tiny_settings(cap_bytes=20_000)
    result = run_trial(settings, alone, tmp_path)
    assert result["kind"] == "infeasible"
    assert result["metrics"]["bytes/margin"] < 0
    assert f"{-result['metrics']['bytes/margin']:.0f} over the cap of 20000" in result["reason"]
    assert math.isfinite(result["metrics"]["bpb/roundtrip"])


@pytest.mark.parametrize(
    "rates", [{"matrix_lr": 1e30, "scalar_lr": 1e30}, {"matrix_lr": 1e7}, {"tied_embed_lr": float("inf")}]
)
def test_huge_rates_diverge(rates: dict, tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    result = run_trial(tiny_settings(optimizer=rates), alone, tmp_path)
    assert result["kind"] == "diverged"
    assert result["reason"]
    assert (result["artifact"], result["artifact_sha256"]) == (None, None)
    assert not (tmp_path / ARTIFACT).exists()
    assert strict((tmp_path / "result.json").read_text())["kind"] == "diverged"
    for line in (tmp_path / "curve.jsonl").read_text().splitlines():
        strict(line)


def test_a_report_can_stop_the_run(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    result = run_trial(tiny_settings(), alone, tmp_path, lambda point: "seen enough" if point["step"] >= 5 else None)
    assert (result["kind"], result["reason"]) == ("stopped", "seen enough")
    assert result["metrics"]["train/steps"] in (5, 6)
    assert "bpb/roundtrip" not in result["metrics"]
    assert result["artifact"] is None
    assert strict((tmp_path / "result.json").read_text())["kind"] == "stopped"


def test_a_wish_to_stop_at_the_end_is_too_late(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    result = run_trial(tiny_settings(), alone, tmp_path, lambda point: "late" if point["step"] == 12 else None)
    assert result["kind"] == "scored"


def test_log_points_bound_the_reports(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    points: list[dict] = []
    run_trial(tiny_settings(runtime={"log_points": 3}), alone, tmp_path, lambda point: points.append(point))
    assert len(points) <= 4
    assert points[-1]["step"] == 12


def test_errors_in_data_are_raised(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no fineweb_train"):
        run_trial(tiny_settings(data={"folder": str(tmp_path), "tokenizer": ""}), alone, tmp_path / "run")
    with pytest.raises(ValueError, match="320 pieces"):
        run_trial(tiny_settings(model={"vocab_size": 300}), alone, tmp_path / "run")


def test_settings_travel_as_json(tiny_settings) -> None:
    settings = tiny_settings()
    assert settings_from_dict(json.loads(settings_to_json(settings))) == settings
    with pytest.raises(TypeError, match="learning_rate"):
        settings_from_dict({"learning_rate": 3})
    with pytest.raises(TypeError, match="depth"):
        settings_from_dict({"model": {"depth": 3}})
