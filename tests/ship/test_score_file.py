"""Scoring files that somebody else made: whatever is wrong with them is a ScoreError that names the file."""

import io
import json
import os
import pathlib
import zlib

import pytest
import torch

from golfray.core.gang import Gang
from golfray.core.train_frontier import run_frontier_trial
from golfray.ship.score_file import ScoreError, score_file

ARTIFACT = "final_model.int8.ptz"


class Hostile:
    """Creates a folder when it is unpickled by a loader that trusts it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def packed(container):
    buffer = io.BytesIO()
    torch.save(container, buffer)
    return zlib.compress(buffer.getvalue())


@pytest.fixture(scope="module")
def content(trained_folder):
    return (trained_folder / ARTIFACT).read_bytes()


@pytest.fixture(scope="module")
def settings(trained_folder):
    return (trained_folder / "settings.json").read_text()


def refusal(folder, artifact, settings):
    """Why an artifact with these settings beside it is refused."""
    (folder / ARTIFACT).write_bytes(artifact)
    (folder / "settings.json").write_text(settings)
    with pytest.raises(ScoreError) as refused:
        score_file(folder / ARTIFACT, None, None, None)
    message = str(refused.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda content: b"hello", "artifact is not zlib data"),
        (lambda content: content[:-100], "artifact is cut short"),
        (lambda content: content + b"x", "artifact has bytes after its end"),
        (lambda content: zlib.compress(bytes(1 << 28), 1), "artifact inflates to more than "),
        (lambda content: packed([1]), "artifact holds a list, must be a dict"),
        (lambda content: packed({"__quant_format__": "int9"}), "artifact format is 'int9', must be "),
    ],
)
def test_an_artifact_that_is_none(tmp_path, content, settings, spoil, expected):
    assert expected in refusal(tmp_path, spoil(content), settings)


def test_an_artifact_that_is_a_program(tmp_path, content, settings):
    container = torch.load(io.BytesIO(zlib.decompress(content)), weights_only=True)
    hostile = packed({**container, "qmeta": Hostile(tmp_path / "sprung")})
    assert "artifact needs posix.mkdir to be read, which is no plain data" in refusal(tmp_path, hostile, settings)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": {"num_heads": 0}}, "model.num_heads: must be an integer >= 1, got 0"),
        ({"model": {"num_heads": 3}}, "model_dim / num_heads must be an even integer"),
        ({"model": {"model_dim": "64"}}, 'model.model_dim: must be an integer >= 1 and <= 65536, got "64"'),
        ({"model": 3}, "settings model: is a section"),
        ({"batch": {"seq_len": 0}}, "batch.seq_len: must be an integer >= 1, got 0"),
        ({"runtime": {"dtype": "float99"}}, "runtime.dtype: must be one of auto, float32, bfloat16"),
        ({"bytes_code": -1}, "bytes_code must be an integer >= 0, got -1"),
        ({"cap_bytes": 0}, "cap_bytes: must be an integer >= 1, got 0"),
        ({"artefact": {}}, "unknown settings ['artefact']"),
    ],
)
def test_settings_that_no_trial_can_have_had(tmp_path, content, settings, changes, expected):
    values = json.loads(settings)
    for section, fields in changes.items():
        values[section] = {**values[section], **fields} if isinstance(fields, dict) and fields else fields
    message = refusal(tmp_path, content, json.dumps(values))
    assert "settings.json: not the settings of a trial: " in message
    assert expected in message


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_settings_that_are_something_else(tmp_path, content, text):
    assert "not the settings of a trial: " in refusal(tmp_path, content, text)


def test_settings_of_another_model(tmp_path, content, settings):
    values = json.loads(settings)
    values["model"]["model_dim"] *= 2
    assert "artifact does not fit the model: " in refusal(tmp_path, content, json.dumps(values))


def test_files_that_are_not_there(tmp_path, content):
    with pytest.raises(ScoreError, match=r"absent\.ptz: cannot be read: No such file or directory"):
        score_file(tmp_path / "absent.ptz", None, None, None)
    (tmp_path / ARTIFACT).write_bytes(content)
    with pytest.raises(ScoreError, match=r"settings\.json: no such file; give the artifact's settings with --settings"):
        score_file(tmp_path / ARTIFACT, None, None, None)


@pytest.mark.parametrize("endless", ["artifact", "settings"])
def test_a_file_without_an_end(tmp_path, content, monkeypatch, endless):
    monkeypatch.setattr("golfray.ship.score_file._LARGEST_ARTIFACT", len(content))
    (tmp_path / ARTIFACT).write_bytes(content)
    files = {
        "artifact": tmp_path / ARTIFACT,
        "settings": tmp_path / "settings.json",
        endless: pathlib.Path("/dev/zero"),
    }
    with pytest.raises(ScoreError, match=r"^/dev/zero: is larger than [\d,]+ bytes, as no such file is$"):
        score_file(files["artifact"], files["settings"], None, None)


def test_a_tokenizer_that_is_none(trained_folder, tmp_path):
    (tmp_path / "some.model").write_text("hello")
    with pytest.raises(ScoreError, match=r"some\.model: no tokenizer of this model: .*; give the shards' own with"):
        score_file(trained_folder / ARTIFACT, None, None, tmp_path / "some.model")


def test_data_that_is_not_there(trained_folder, tmp_path):
    with pytest.raises(ScoreError, match=r"no fineweb_val_\*\.bin here.*give the validation data with --data"):
        score_file(trained_folder / ARTIFACT, None, tmp_path, None)


def test_other_data_can_be_named_and_the_cap_is_that_of_the_settings(
    trained_folder, content, settings, tiny_corpus, tmp_path
):
    """An artifact that came alone, with settings whose paths are another machine's."""
    result = json.loads((trained_folder / "result.json").read_text())["metrics"]
    values = json.loads(settings)
    values["data"] = {"folder": "/theirs", "tokenizer": "/theirs.model"}
    for cap, fits in ((len(content) + values["bytes_code"], True), (len(content) + values["bytes_code"] - 1, False)):
        (tmp_path / "theirs.json").write_text(json.dumps({**values, "cap_bytes": cap}))
        scored = score_file(
            trained_folder / ARTIFACT, tmp_path / "theirs.json", tiny_corpus.folder, tiny_corpus.tokenizer
        )
        # The threads of this process add up in another order.
        assert scored.bits_per_byte == pytest.approx(result["bpb/roundtrip"], abs=2e-5)
        assert scored.fits == fits
        assert ("INFEASIBLE: 1 bytes over" in scored.lines()[1]) != fits


def test_a_flat_artifact_is_scored_as_its_trial_scored_it(tiny_settings, tmp_path):
    flat = {"format": "flat", "bits_mlp": 5, "gptq": True, "gptq_batches": 1, "codec": "lzma", "scale_floor": 0.0}
    trial = run_frontier_trial(tiny_settings(export=flat), Gang(0, 1, torch.device("cpu")), tmp_path)
    scored = score_file(tmp_path / trial["artifact"], None, None, None)
    assert scored.bits_per_byte == pytest.approx(trial["metrics"]["bpb/roundtrip"], abs=2e-5)
    assert scored.bytes_model == trial["metrics"]["bytes/model"]
