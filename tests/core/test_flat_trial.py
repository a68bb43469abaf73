"""A trial that exports flat: averaged weights, calibrated on training tokens, in a file that says its format."""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable

import pytest
import torch

from golfray.core.exporter import export_state, load_artifact
from golfray.core.frontier import FrontierParts, training_stop
from golfray.core.gang import Gang
from golfray.core.gptq import collect_hessians
from golfray.core.model import GPT, build_model
from golfray.core.settings import RunSettings, StopSettings
from golfray.core.shards import TokenStream, list_shards
from golfray.core.train_frontier import run_frontier_trial
from golfray.core.trial import CHECKPOINT_NAME

FLAT = {
    "format": "flat",
    "bits_attention": 6,
    "bits_mlp": 5,
    "bits_embedding": 7,
    **{f"clip_{name}": "std" for name in ("attention", "mlp", "embedding")},
    "clip_k_attention": 6.0,
    "clip_k_mlp": 5.0,
    "clip_k_embedding": 8.0,
    "gptq": True,
    "gptq_batches": 3,
    "codec": "brotli",
    "codec_level": 11,
    "shuffle": True,
}
CPU = torch.device("cpu")


def first_micro_batches(settings: RunSettings, count: int) -> list[torch.Tensor]:
    """Inputs of the stream's beginning, as training reads them."""
    stream, batch = TokenStream(list_shards(pathlib.Path(settings.data.folder), "train")), settings.batch
    tokens = batch.tokens // batch.slices
    return [stream.slice_batch(number, tokens, batch.seq_len)[0] for number in range(count)]


@pytest.fixture(scope="module")
def flat_trial(tiny_settings, tmp_path_factory) -> tuple[RunSettings, dict, list[str], pathlib.Path]:
    folder = tmp_path_factory.mktemp("flat")
    settings = tiny_settings(
        export=FLAT, averaging={"method": "ema", "ema_window_share": 0.2}, evaluation={"sliding_stride": 28}
    )
    heard: list[str] = []
    return settings, run_frontier_trial(settings, Gang(0, 1, CPU), folder, None, heard.append), heard, folder


def test_it_is_scored_by_its_own_file(flat_trial) -> None:
    _, result, heard, folder = flat_trial
    assert (result["kind"], result["artifact"]) == ("scored", "final_model.flat")
    assert not list(folder.glob("*.ptz"))
    content = (folder / result["artifact"]).read_bytes()
    assert content.startswith(b"golfray-flat 1 brotli ")
    assert result["metrics"]["bytes/model"] == len(content)
    phases = ["data", "compile", "train", "validate", "calibrate", "export", "score", "sliding"]
    assert heard == list(result["phases"]) == phases
    metrics = result["metrics"]
    assert 0 < abs(metrics["bpb/roundtrip"] - metrics["bpb/prequant"]) < 0.2
    assert {"bpb/live", "bpb/sliding"} <= metrics.keys()


def test_its_bytes_are_those_of_the_checkpoint_and_the_first_training_tokens(flat_trial) -> None:
    settings, _, _, folder = flat_trial
    state = torch.load(folder / CHECKPOINT_NAME, weights_only=True)
    model = GPT(settings.model)
    model.load_state_dict(state)
    content = (folder / "final_model.flat").read_bytes()
    hessians = collect_hessians(model, first_micro_batches(settings, 3))
    assert content == export_state(state, settings.export, hessians)
    assert content != export_state(state, settings.export, collect_hessians(model, first_micro_batches(settings, 4)))
    loaded = load_artifact(content)
    assert sorted(loaded) == sorted(state)
    assert all(loaded[name].dtype == state[name].dtype for name in state)


def calibrated(settings: RunSettings, gang: Gang) -> dict[str, torch.Tensor]:
    """What one rank of a gang knows after calibration of a fresh model."""
    torch.manual_seed(0)
    parts = FrontierParts(settings, gang)
    parts.begin(build_model(settings.model, torch.float32, CPU))
    entered: list[str] = []
    parts.calibrate(TokenStream(list_shards(pathlib.Path(settings.data.folder), "train")), entered.append)
    assert entered == (["calibrate"] if settings.export.gptq else [])
    return parts.hessians


def test_calibration_is_rank_0s_and_the_same_in_any_gang(tiny_settings) -> None:
    settings = tiny_settings(export=FLAT)
    one, first, second = (calibrated(settings, Gang(*place, CPU)) for place in ((0, 1), (0, 2), (1, 2)))
    assert first.keys() == one.keys() != set()
    assert all(torch.equal(first[name], one[name]) for name in one)
    assert second == {}
    assert calibrated(tiny_settings(export={**FLAT, "gptq": False}), Gang(0, 1, CPU)) == {}


def test_what_no_hessian_is_known_for_is_said(tiny_settings, alone, tmp_path: pathlib.Path, capsys) -> None:
    untied = tiny_settings(export=FLAT, model={"tie_embeddings": False}, stop={"steps": 1})
    run_frontier_trial(untied, alone, tmp_path / "untied")
    said = "golfray: no Hessian, so rounded to the nearest without GPTQ: tok_emb.weight\n"
    assert said in capsys.readouterr().out
    run_frontier_trial(tiny_settings(export=FLAT, stop={"steps": 1}), alone, tmp_path / "tied")
    assert "no Hessian" not in capsys.readouterr().out


def test_only_timed_training_leaves_time_for_calibration(tiny_settings) -> None:
    def stop(**changes: object) -> StopSettings:
        export = {**FLAT, "gptq_reserve_seconds": 4.0, **changes}
        return training_stop(tiny_settings(stop={"steps": 90, "seconds": 10.0}, export=export))

    assert stop() == StopSettings(steps=90, seconds=6.0)
    assert stop(gptq_reserve_seconds=0.0) == stop(gptq=False) == StopSettings(steps=90, seconds=10.0)
    assert training_stop(tiny_settings(export=FLAT)) == tiny_settings().stop
    with pytest.raises(ValueError, match=r"gptq_reserve_seconds must be < stop\.seconds \(10\), got 10"):
        stop(gptq_reserve_seconds=10.0)


@pytest.mark.parametrize(("reserve", "said"), [(1e-9, True), (0.0, False), (0.5, False)])
def test_calibration_beyond_its_time_is_said(tiny_settings, capsys, reserve: float, said: bool) -> None:
    export = {**FLAT, "gptq_batches": 1, "gptq_reserve_seconds": reserve}
    calibrated(tiny_settings(export=export, stop={"seconds": 600.0 if said else 3600.0}), Gang(0, 1, CPU))
    assert ("s, export.gptq_reserve_seconds were 1e-09" in capsys.readouterr().out) is said


def test_a_timed_run_ends_early_and_replays_to_the_same_bytes(tiny_settings, alone, tmp_path: pathlib.Path) -> None:
    stop = {"steps": None, "seconds": 0.6}
    averaging = {"method": "ema", "ema_window_share": 0.2}
    timed = tiny_settings(export={**FLAT, "gptq_reserve_seconds": 0.4}, stop=stop, averaging=averaging)
    run_frontier_trial(timed, alone, tmp_path / "timed")
    trace = tmp_path / "timed" / "clock.json"
    readings = json.loads(trace.read_text())["readings_s"]
    assert readings[-2] < training_stop(timed).seconds <= readings[-1]
    run_frontier_trial(dataclasses.replace(timed, clock_trace=str(trace)), alone, tmp_path / "again")
    first, again = ((tmp_path / name / "final_model.flat").read_bytes() for name in ("timed", "again"))
    assert first == again


def test_a_codec_that_is_missing_ends_it_before_anything_is_trained(
    tiny_settings: Callable[..., RunSettings], alone: Gang, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Python itself takes for "not to be had".
    monkeypatch.setitem(sys.modules, "brotli", None)
    with pytest.raises(ImportError, match=r"codec brotli needs the package brotli: .* -m pip install brotli"):
        run_frontier_trial(tiny_settings(export=FLAT), alone, tmp_path / "run")
    assert not (tmp_path / "run").exists()
