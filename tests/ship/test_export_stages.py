"""Exports again, as stages over files: the trial's own bytes, kept once they are there, never written over."""

import dataclasses
import json
import pathlib
import shutil

import pytest
import torch

from golfray.config.errors import ConfigError
from golfray.core.exporter import load_artifact
from golfray.core.trial import CHECKPOINT_NAME
from golfray.ship.export_source import find_checkpoint, resolve_trial
from golfray.ship.export_stages import ExportFolder
from golfray.ship.foreign_checkpoint import CheckpointError, read_checkpoint
from golfray.ship.score_file import ScoreError, further_metrics, score_file

REFERENCE = "final_model.int8.ptz"
FLAT = ["export.format=flat", "export.codec=lzma", "export.clip_mlp=std", "export.bits_mlp=6"]


@pytest.fixture
def settings_of(trained_folder):
    def settings(*sets: str):
        return resolve_trial(trained_folder / "settings.json", list(sets)).config.to_run_settings(1000)

    return settings


@pytest.fixture
def checkpoint(trained_folder):
    return read_checkpoint(trained_folder / CHECKPOINT_NAME)


def silence(line: str) -> None:
    pass


def test_under_its_own_settings_a_trial_is_exported_as_it_was(checkpoint, settings_of, trained_folder, tmp_path):
    folder = ExportFolder(tmp_path / "out", checkpoint, settings_of())
    exported = folder.export(silence)
    assert folder.artifact.read_bytes() == (trained_folder / REFERENCE).read_bytes()
    metrics = json.loads((trained_folder / "result.json").read_text())["metrics"]
    assert exported.bytes_model == metrics["bytes/model"]
    # The threads of this process add up in another order.
    assert folder.score().bits_per_byte == pytest.approx(metrics["bpb/roundtrip"], abs=2e-5)


def test_parts_are_all_there_is(checkpoint, settings_of, tmp_path):
    """A flat artifact's parts are all of its content but the table, and the codec comes near to their entropy."""
    exported = ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT)).export(silence)
    own = checkpoint.state(settings_of().model)
    assert sum(part.elements for part in exported.parts) == sum(tensor.numel() for tensor in own.values())
    assert sum(part.tensors for part in exported.parts) == len(own)
    parts = {part.name: part for part in exported.parts}
    assert parts.keys() == {"attention", "mlp", "embedding", "control"}
    assert (parts["mlp"].bits, parts["attention"].bits, parts["control"].bits) == ((6,), (8,), (32,))
    # One step a row of the 3 layers' two matrices, in two bytes.
    hidden, width = own["blocks.0.mlp.fc.weight"].shape
    assert parts["mlp"].bytes_raw == 6 * hidden * width + 3 * 2 * (hidden + width)
    entropy = sum(part.bytes_entropy for part in exported.parts)
    assert 0.9 * entropy < exported.bytes_model < 1.2 * entropy


def test_gptq_calibrates_on_training_tokens(checkpoint, settings_of, tmp_path):
    sets = [*FLAT, "export.bits_mlp=3", "export.gptq_batches=2"]
    folders = {
        gptq: ExportFolder(tmp_path / gptq, checkpoint, settings_of(*sets[:3], *sets[4:], f"export.gptq={gptq}"))
        for gptq in ("false", "true")
    }
    said: list[str] = []
    for folder in folders.values():
        folder.export(said.append)
    assert said == ["GPTQ: calibrating on 256 training tokens"]
    plain, made_up_for = (load_artifact(folder.artifact.read_bytes()) for folder in folders.values())
    assert plain.keys() == made_up_for.keys()
    assert any(not torch.equal(plain[name], made_up_for[name]) for name in plain)


def test_sliding_windows_are_scored_where_the_settings_ask_for_them(checkpoint, settings_of, tmp_path):
    whole = ExportFolder(tmp_path / "whole", checkpoint, settings_of(*FLAT, "evaluation.sliding_stride=32"))
    whole.export(silence)
    scored = whole.score()
    # Windows that do not overlap are the validation itself.
    assert scored.metrics["bpb/sliding"] == pytest.approx(scored.bits_per_byte, abs=2e-5)
    assert scored.lines()[1] == (
        f"bpb/sliding {scored.metrics['bpb/sliding']:.5f}  val_loss/sliding {scored.metrics['val_loss/sliding']:.5f}"
    )
    assert score_file(whole.artifact, None, None, None) == scored == whole.score()
    assert further_metrics(whole.artifact, whole.settings) == scored.metrics
    sets = [*FLAT, "evaluation.sliding_stride=1", "evaluation.sliding_seconds=1e-9"]
    short = ExportFolder(tmp_path / "short", checkpoint, settings_of(*sets))
    short.export(silence)
    cut = short.score()
    assert cut.metrics.keys() == {"sliding/scored_share"}
    assert cut.lines()[1].startswith("bpb/sliding none: evaluation.sliding_seconds were over at ")
    plain = ExportFolder(tmp_path / "plain", checkpoint, settings_of(*FLAT))
    plain.export(silence)
    assert plain.score().metrics == {}


def test_what_no_hessian_is_known_for_is_said(checkpoint, settings_of, tmp_path):
    said: list[str] = []
    sets = (*FLAT, "export.gptq=true", "export.gptq_batches=1", "export.overrides='skip_weights bits=8'")
    ExportFolder(tmp_path / "out", checkpoint, settings_of(*sets)).export(said.append)
    assert said[1:] == ["no Hessian, so rounded to the nearest without GPTQ: skip_weights"]


def test_what_is_done_is_kept(checkpoint, settings_of, tmp_path):
    """Interrupted anywhere, the same command goes on with what is left."""
    folder = ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT))
    first = folder.export(silence)
    score = folder.score()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    said: list[str] = []
    again = ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT))
    assert (again.export(said.append), again.score()) == (first, score)
    assert said == [f"{folder.artifact}: exported before, and kept"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times
    # Killed after the artifact was written and before the stage was told to be over.
    (tmp_path / "out" / "export.json").unlink()
    (tmp_path / "out" / "score.json").unlink()
    repeated = ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT))
    assert repeated.export(silence).artifact_sha256 == first.artifact_sha256
    assert repeated.score() == score
    assert {path.name for path in times} == {path.name for path in (tmp_path / "out").iterdir()}


def test_nothing_is_written_over(checkpoint, settings_of, tmp_path):
    ExportFolder(tmp_path / "out", checkpoint, settings_of()).export(silence)
    with pytest.raises(ConfigError, match=r"out: exists already, of other settings, and is never written over"):
        ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT))
    with pytest.raises(ConfigError, match=r"out: exists already, of other checkpoint, and is never written over"):
        ExportFolder(tmp_path / "out", dataclasses.replace(checkpoint, sha256="0"), settings_of())
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").touch()
    for taken in (tmp_path / "own", tmp_path / "own" / "file"):
        with pytest.raises(ConfigError, match="exists already"):
            ExportFolder(taken, checkpoint, settings_of())
    (tmp_path / "out" / REFERENCE).write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"final_model\.int8\.ptz: is not the artifact that was exported here"):
        ExportFolder(tmp_path / "out", checkpoint, settings_of()).export(silence)
    (tmp_path / "out" / "export.json").write_text("{")
    with pytest.raises(ConfigError, match=r"export\.json: is damaged"):
        ExportFolder(tmp_path / "out", checkpoint, settings_of())


def test_a_flat_export_is_scored_by_its_folder_alone(checkpoint, settings_of, tmp_path):
    folder = ExportFolder(tmp_path / "out", checkpoint, settings_of(*FLAT))
    folder.export(silence)
    assert score_file(folder.artifact, None, None, None) == folder.score()


def test_weights_beyond_float16_cannot_be_exported(settings_of, trained_folder, tmp_path):
    state = torch.load(trained_folder / CHECKPOINT_NAME, weights_only=True)
    state["blocks.1.mlp.fc.weight"][0, 0] = 1e9
    torch.save(state, tmp_path / "checkpoint.pt")
    folder = ExportFolder(tmp_path / "out", read_checkpoint(tmp_path / "checkpoint.pt"), settings_of(*FLAT))
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: blocks\.1\.mlp\.fc\.weight is not finite as float16"):
        folder.export(silence)
    assert not folder.artifact.exists()


def test_data_that_are_not_there(checkpoint, settings_of, tmp_path):
    settings = settings_of(*FLAT, "export.gptq=true", f"data.folder={tmp_path}")
    folder = ExportFolder(tmp_path / "out", checkpoint, settings)
    with pytest.raises(ScoreError, match=r"no fineweb_train_\*\.bin here.*export\.gptq calibrates on training tokens"):
        folder.export(silence)


def test_where_a_checkpoint_is_looked_for(trained_folder, tmp_path):
    trial = tmp_path / "0003"
    for attempt in ("attempt-2", "attempt-10"):
        shutil.copytree(trained_folder, trial / attempt)
    (trial / "attempt-11").mkdir()
    found = (trial / "attempt-10" / "checkpoint.pt", trial / "attempt-10" / "settings.json")
    assert find_checkpoint(trial) == find_checkpoint(trial / "attempt-10") == find_checkpoint(found[0]) == found
    # Somebody else's file has settings of nobody's.
    foreign = trial / "attempt-10" / "final_model.pt"
    assert find_checkpoint(foreign) == (foreign, None)
    with pytest.raises(CheckpointError, match=r"attempt-11: has no checkpoint\.pt, nor has an attempt in it"):
        find_checkpoint(trial / "attempt-11")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.num_heads=2", "--set model.num_heads: was decided when the checkpoint was trained"),
        ("optimizer.matrix_lr=0.1", "--set optimizer.matrix_lr: was decided when the checkpoint was trained"),
        ("export.bits_mlp=3", "--set export.bits_mlp: must be 4 to 8 under export.format reference, got 3"),
        ("export.codec=brotli", "is not for export.format reference"),
        ("export.bit_mlp=6", "did you mean export.bits_mlp?"),
    ],
)
def test_settings_that_an_export_cannot_have(trained_folder: pathlib.Path, text: str, expected: str):
    with pytest.raises(ConfigError) as refused:
        resolve_trial(trained_folder / "settings.json", [text])
    assert expected in str(refused.value)
