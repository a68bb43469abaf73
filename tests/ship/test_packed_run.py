"""The packed script runs where golfray is not installed, and its artifact is that of the package, byte for byte."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest

from golfray.core.settings import (
    AveragingSettings,
    BatchSettings,
    DataSettings,
    EvaluationSettings,
    ExportSettings,
    ModelSettings,
    RunSettings,
    RuntimeSettings,
    ScheduleSettings,
    ShipSettings,
    StopSettings,
    settings_to_json,
)
from golfray.ship.modules import recipe_of
from golfray.ship.packer import pack, write_packed

ROOT = pathlib.Path(__file__).parents[2]
ARTIFACT = "final_model.int8.ptz"
TIMEOUT_S = 600
# Ends of the names of metrics that a busy machine changes.
TIMED = ("seconds", "step_ms", "tokens_per_s")


@pytest.fixture(scope="module")
def site_without_golfray(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder that links to every installed package but golfray.

    Used as PYTHONPATH under ``python -S``, which reads no site-packages and hence no .pth file of an editable install.
    """
    site = tmp_path_factory.mktemp("site")
    for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
        if "golfray" not in entry.name and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    return site


@pytest.fixture(scope="module")
def trial_settings(tiny_corpus) -> RunSettings:
    """Six steps of a very small model, in which every tensor class is quantized."""
    return RunSettings(
        model=ModelSettings(vocab_size=tiny_corpus.vocab_size, num_layers=2, model_dim=32, num_heads=2, num_kv_heads=1),
        batch=BatchSettings(tokens=1024, seq_len=64, slices=4, val_tokens=4096),
        schedule=ScheduleSettings(warmup_steps=1, warmdown_share=0.5),
        stop=StopSettings(steps=6, seconds=None),
        data=DataSettings(folder=str(tiny_corpus.folder), tokenizer=str(tiny_corpus.tokenizer)),
        export=ExportSettings(bits_mlp=6, keep_float_max_numel=256, scale_floor=0.0),
        runtime=RuntimeSettings(device="cpu", dtype="float32", compile="off", log_points=3),
    )


def environment(python_path: pathlib.Path) -> dict[str, str]:
    """One thread, a given PYTHONPATH, and nothing of a gang that the tests themselves may run in."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {**kept, "PYTHONPATH": str(python_path), "OMP_NUM_THREADS": "1"}


def run_ranks(ranks: int, python: list[str], arguments: list[str], folder: pathlib.Path, python_path: pathlib.Path):
    """Run ``python + arguments`` in a folder, alone or as each rank under torchrun; the test fails if it does."""
    command = [*python, *arguments]
    if ranks > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "--no-python"]
        command = [*python, *torchrun, *command]
    run = subprocess.run(
        command, cwd=folder, env=environment(python_path), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run


def check_same_artifact(
    settings: RunSettings, ranks: int, tmp_path: pathlib.Path, site_without_golfray: pathlib.Path
) -> None:
    """Run the package and the packed script and compare what they wrote."""
    script = pack(settings)
    with_golfray, alone = tmp_path / "with_golfray", tmp_path / "alone"
    with_golfray.mkdir()
    alone.mkdir()
    (tmp_path / "settings.json").write_text(settings_to_json(script.settings))
    module = ["-m", recipe_of(settings).entry, str(tmp_path / "settings.json")]
    run_ranks(ranks, [sys.executable], module, with_golfray, ROOT)

    write_packed(alone / "train_gpt.py", script)
    python = [sys.executable, "-S"]
    absent = subprocess.run(
        [*python, "-c", "import numpy, golfray"], cwd=alone, env=environment(site_without_golfray), capture_output=True
    )
    assert b"ModuleNotFoundError: No module named 'golfray'" in absent.stderr
    run = run_ranks(ranks, python, ["train_gpt.py"], alone, site_without_golfray)

    results = [json.loads((folder / "result.json").read_text()) for folder in (with_golfray, alone)]
    assert [result["kind"] for result in results] == ["scored", "scored"]
    assert results[1]["fidelity"] == results[0]["fidelity"]
    assert results[1]["fidelity"]["workers"] == ranks
    assert results[1]["fidelity"]["compiled"] == (settings.runtime.compile == "on")
    assert results[0]["artifact"] == (ARTIFACT if settings.export.format == "reference" else "final_model.flat")
    first, second = ((folder / results[0]["artifact"]).read_bytes() for folder in (with_golfray, alone))
    assert first == second
    assert results[1]["artifact_sha256"] == results[0]["artifact_sha256"]
    measured = [
        {name: value for name, value in result["metrics"].items() if not name.endswith(TIMED)} for result in results
    ]
    assert measured[1] == measured[0]
    assert {"bpb/prequant", "bpb/roundtrip", "train/loss", "train/steps", "bytes/total"} <= measured[1].keys()
    assert ("bpb/sliding" in measured[1]) == (settings.evaluation.sliding_stride is not None)
    assert results[1]["metrics"]["bytes/code"] == (alone / "train_gpt.py").stat().st_size
    assert json.loads(run.stdout.splitlines()[-1])["kind"] == "scored"


def test_one_rank(trial_settings, tmp_path, site_without_golfray) -> None:
    check_same_artifact(trial_settings, 1, tmp_path, site_without_golfray)


def with_all_that_core_has(settings: RunSettings, source: str) -> RunSettings:
    """Averaged weights, the flat export with GPTQ, and sliding windows, in one form of the script."""
    flat = dataclasses.replace(
        settings.export, format="flat", clip_attention="std", clip_k_attention=6.0, codec="lzma", gptq=True
    )
    return dataclasses.replace(
        settings,
        averaging=AveragingSettings(method="ema", ema_window_share=0.3),
        evaluation=EvaluationSettings(sliding_stride=48),
        export=dataclasses.replace(flat, gptq_batches=2, overrides="*.attn.c_k.* bits=7; blocks.0.* group=16"),
        ship=ShipSettings(source=source),
    )


def test_one_rank_from_compressed_source_with_all_that_core_has(trial_settings, tmp_path, site_without_golfray) -> None:
    check_same_artifact(with_all_that_core_has(trial_settings, "lzma"), 1, tmp_path, site_without_golfray)


@pytest.mark.slow
def test_two_ranks_with_all_that_core_has(trial_settings, tmp_path, site_without_golfray) -> None:
    check_same_artifact(with_all_that_core_has(trial_settings, "plain"), 2, tmp_path, site_without_golfray)


@pytest.mark.slow
def test_two_compiled_ranks_from_compressed_source(trial_settings, tmp_path, site_without_golfray) -> None:
    """What is compiled has no source text to be found there; its artifact is that of the plain script all the same."""
    compiled = dataclasses.replace(
        trial_settings,
        runtime=dataclasses.replace(trial_settings.runtime, compile="on"),
        ship=ShipSettings(source="lzma"),
    )
    check_same_artifact(compiled, 2, tmp_path, site_without_golfray)
    plain = dataclasses.replace(compiled, ship=ShipSettings(source="plain"))
    write_packed(tmp_path / "train_gpt.py", pack(plain))
    run_ranks(2, [sys.executable, "-S"], ["train_gpt.py"], tmp_path, site_without_golfray)
    assert (tmp_path / ARTIFACT).read_bytes() == (tmp_path / "alone" / ARTIFACT).read_bytes()


@pytest.mark.slow
def test_two_ranks(trial_settings, tmp_path, site_without_golfray) -> None:
    check_same_artifact(trial_settings, 2, tmp_path, site_without_golfray)


@pytest.mark.slow
def test_two_ranks_compiled(trial_settings, tmp_path, site_without_golfray) -> None:
    compiled = dataclasses.replace(trial_settings.runtime, compile="on")
    check_same_artifact(dataclasses.replace(trial_settings, runtime=compiled), 2, tmp_path, site_without_golfray)


def test_other_settings_and_folder_as_arguments(trial_settings, tmp_path, site_without_golfray) -> None:
    """What the script carries would end in an error here; what it is given runs, into the folder it is given."""
    script = pack(dataclasses.replace(trial_settings, data=DataSettings(folder="absent", tokenizer="absent")))
    write_packed(tmp_path / "train_gpt.py", script)
    (tmp_path / "settings.json").write_text(settings_to_json(trial_settings))
    arguments = ["train_gpt.py", "settings.json", "out"]
    run_ranks(1, [sys.executable, "-S"], arguments, tmp_path, site_without_golfray)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["kind"] == "scored"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "settings.json", "train_gpt.py"]


def test_wrong_number_of_arguments_says_how_to_call_it(trial_settings, tmp_path, site_without_golfray) -> None:
    write_packed(tmp_path / "train_gpt.py", pack(trial_settings))
    command = [sys.executable, "-S", "train_gpt.py", "1", "2", "3"]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment(site_without_golfray), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert run.returncode == 2
    assert "usage: train_gpt.py SETTINGS.json [FOLDER]" in run.stderr
