"""`golfray export`: of a trial, of its checkpoint, of somebody else's state dict."""

import json
import pathlib
import shutil

import pytest
import torch

from golfray.cli.main import app
from golfray.core.trial import CHECKPOINT_NAME
from golfray.data.errors import DataError
from golfray.ship.score_file import score_file
from tests.cli.conftest import as_sets
from tests.cli.documented import read_tables

TABLES = read_tables()
REFERENCE = "final_model.int8.ptz"


@pytest.fixture
def export(capsys):
    """Runs the verb in this process; returns its exit code, what it printed, and its document where it is asked for."""

    def run(*arguments: object) -> tuple[int, str, dict]:
        code = app(args=["export", *map(str, arguments)], prog_name="golfray", standalone_mode=False)
        printed = capsys.readouterr()
        if "--json" not in arguments:
            return int(code or 0), printed.out, {}
        document = json.loads(printed.out)
        assert TABLES.mistakes(document) == []
        return int(code or 0), printed.err, document

    return run


def refusal(export, *arguments: object) -> str:
    """Why a command is refused, with exit code 2 and in one line."""
    with pytest.raises(Exception, match=r".") as refused:
        export(*arguments)
    assert getattr(refused.value, "exit_code", None) == 2, refused.value
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def foreign(trained_folder, tmp_path) -> pathlib.Path:
    """The state dict of the trained model alone, under the reference's name."""
    path = tmp_path / "theirs" / "final_model.pt"
    path.parent.mkdir()
    shutil.copy(trained_folder / CHECKPOINT_NAME, path)
    return path


@pytest.fixture
def theirs(tiny_corpus) -> list[str]:
    """What a state dict does not tell of how the tiny trial was scored."""
    data = {"data.folder": str(tiny_corpus.folder), "data.tokenizer": str(tiny_corpus.tokenizer)}
    own = {"export.keep_float_max_numel": 256, "export.scale_floor": 0.0, "batch.seq_len": 32}
    return as_sets({**data, **own, "runtime.device": "cpu", "runtime.compile": "off"})


def test_a_trial_again(export, trained_folder, tmp_path):
    code, said, document = export(trained_folder, "--out", tmp_path / "out", "--json")
    metrics = json.loads((trained_folder / "result.json").read_text())["metrics"]
    assert code == 0
    assert (tmp_path / "out" / REFERENCE).read_bytes() == (trained_folder / REFERENCE).read_bytes()
    assert document["kind"] == "export"
    exported = document["exported"]
    assert exported["bytes_model"] == metrics["bytes/model"]
    assert exported["bytes_total"] == exported["bytes_code"] + exported["bytes_model"]
    assert exported["margin"] == exported["cap_bytes"] - exported["bytes_total"] > 0
    assert document["checkpoint"] == str(trained_folder / CHECKPOINT_NAME)
    assert document["score"]["bits_per_byte"] == pytest.approx(metrics["bpb/roundtrip"], abs=2e-5)
    assert "bpb/roundtrip " in said
    assert "bytes to spare" in said
    # Again, and nothing but the file's own words changes.
    assert export(trained_folder, "--out", tmp_path / "out", "--json")[2] == document


def test_other_settings_and_a_cap_that_is_passed(export, trained_folder, tmp_path):
    sets = ["--set=export.format=flat", "--set=export.codec=lzma", "--set=export.bits_mlp=3"]
    code, said, document = export(
        trained_folder / CHECKPOINT_NAME, "--out", tmp_path / "a", *sets, "--no-score", "--json"
    )
    assert (code, document["score"], document["exported"]["artifact"]) == (0, None, "final_model.flat")
    assert not (tmp_path / "a" / "score.json").exists()
    cap = document["exported"]["bytes_total"] - 1
    code, said, _ = export(trained_folder, "--out", tmp_path / "b", *sets, "--no-score", f"--set=cap_bytes={cap}")
    assert code == 7
    assert "INFEASIBLE: 1 bytes over" in said
    # What was left out is made up for.
    assert export(trained_folder, "--out", tmp_path / "a", *sets, "--json")[2]["score"]["bits_per_byte"] > 0


def test_a_state_dict_from_elsewhere(export, foreign, theirs, trained_folder, tmp_path):
    code, said, document = export(foreign, "--out", tmp_path / "out", *theirs, "--bytes-code", "50000", "--json")
    metrics = json.loads((trained_folder / "result.json").read_text())["metrics"]
    assert code == 0
    assert (
        "3 layers x 32, 4 heads of 8, 2 key/value, MLP 64, 320 tokens tied; the rest as preset parameter-golf" in said
    )
    assert (tmp_path / "out" / REFERENCE).read_bytes() == (trained_folder / REFERENCE).read_bytes()
    assert document["score"]["bits_per_byte"] == pytest.approx(metrics["bpb/roundtrip"], abs=2e-5)
    assert (document["exported"]["bytes_code"], document["exported"]["cap_bytes"]) == (50_000, 16_000_000)


def test_without_a_score_no_data_are_needed(export, foreign, theirs, tmp_path):
    rest = [text for text in theirs if "data." not in text]
    assert export(foreign, "--out", tmp_path / "out", *rest, "--no-score")[0] == 0
    with pytest.raises(DataError, match=r"data\.folder"):
        export(foreign, "--out", tmp_path / "other", *rest)


def test_mistakes(export, foreign, theirs, trained_folder, tmp_path):
    out = ["--out", tmp_path / "out"]
    assert "was decided when the checkpoint was trained" in refusal(
        export, trained_folder, *out, "--set=batch.tokens=512"
    )
    assert "blocks.0.attn.q_gain is (4,), the model has (2,)" in refusal(
        export, foreign, *out, *theirs, "--set=model.num_heads=2", "--set=model.num_kv_heads=1"
    )
    assert "has no checkpoint.pt" in refusal(export, tmp_path, *out)
    assert f"{tmp_path / 'absent.pt'}: cannot be read" in refusal(export, tmp_path / "absent.pt", *out)
    assert not (tmp_path / "out" / REFERENCE).exists()
    state = torch.load(foreign, weights_only=True)
    state["tok_emb.weight"][0, 0] = float("nan")
    torch.save(state, foreign)
    assert "final_model.pt: tok_emb.weight has values that are not finite" in refusal(
        export, foreign, "--out", tmp_path / "nan", *theirs
    )


def test_a_search_and_no_score_contradict_each_other(export, trained_folder, tmp_path):
    assert "leave --no-score out" in refusal(export, trained_folder, "--out", tmp_path, "--search", "--no-score")


@pytest.mark.slow
def test_a_search(export, trained_folder, tmp_path):
    """A few settings of the tiny trial: the one chosen is left as any other export is, and found again."""
    command = [trained_folder, "--out", tmp_path / "out", "--search", "--tries", "6"]
    # Room for about half of what the matrices take as int8.
    code = 48_000
    command += [
        f"--set=cap_bytes={code + 20_000}",
        f"--bytes-code={code}",
        "--set=evaluation.sliding_stride=32",
        "--json",
    ]
    ended, said, document = export(*command)
    assert ended == 0
    search, exported = document["search"], document["exported"]
    assert search["chosen"]["codecs"].keys() == {"zlib", "lzma", "zstd", "brotli"}
    assert min(search["chosen"]["codecs"].values()) == search["chosen"]["bytes"]
    assert exported["bytes_model"] == search["chosen"]["bytes"] <= search["max_bytes"] == 20_000
    assert search["chosen"] in search["front"]
    assert document["score"]["bits_per_byte"] == search["validation"]["bits_per_byte"]
    sizes = [tried["bytes"] for tried in search["front"]]
    assert sizes == sorted(sizes)
    assert f"\n* {exported['bytes_model']:>12,} " in said
    # What is in the folder says the same without the search.
    scored = score_file(tmp_path / "out" / "final_model.flat", None, None, None)
    assert scored.bits_per_byte == pytest.approx(document["score"]["bits_per_byte"], abs=2e-5)
    assert scored.metrics["bpb/sliding"] == document["score"]["metrics"]["bpb/sliding"]
    assert f"bpb/sliding {scored.metrics['bpb/sliding']:.5f}" in said
    assert (scored.bytes_code, scored.cap_bytes, scored.fits) == (code, code + 20_000, True)
    front = json.loads((tmp_path / "out" / "front.json").read_text())
    assert len(front["tried"]) >= 6
    assert (tmp_path / "out" / "front.svg").read_text().startswith("<svg")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert export(*command)[2] == document
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times
    assert "of another search or export, and is never written over" in refusal(export, *command, "--tries=7")
    # Killed before all was written: searched again, and what was left is not in the way.
    (tmp_path / "out" / "front.json").unlink()
    (tmp_path / "out" / "settings.json").write_text("{}")
    again = export(*command)[2]
    assert (again["search"]["chosen"], again["score"]) == (search["chosen"], document["score"])


@pytest.mark.slow
def test_a_search_under_a_cap_that_nothing_keeps(export, trained_folder, tmp_path):
    ended, said, document = export(
        *(trained_folder, "--out", tmp_path / "out", "--search", "--tries=2"),
        *("--set=cap_bytes=100500", "--bytes-code=100000", "--json"),
    )
    assert (ended, document["exported"], document["score"]) == (7, None, None)
    assert "nothing fits into 500 bytes" in said
    assert not (tmp_path / "out" / "final_model.flat").exists()


@pytest.mark.slow
def test_train_export_score(golfray, tiny_sets):
    """What a person types: train once, export twice, and score what was written."""
    trained = golfray.run("train", *tiny_sets, "--folder", "trained")
    assert trained.code == 0, trained
    flat = [
        "--set=export.format=flat",
        "--set=export.clip_mlp=std",
        "--set=export.codec=lzma",
        "--set=export.gptq=true",
    ]
    exported = golfray.run("export", "trained", "--out", "exported", *flat)
    assert (exported.code, exported.err) == (0, ""), exported
    scored = golfray.run("score", "exported/final_model.flat")
    assert scored.code == 0, scored
    bpb = next(line for line in scored.out.splitlines() if line.startswith("bpb/roundtrip"))
    assert bpb in exported.out.splitlines()
    refused = golfray.run("export", "trained", "--out", "exported")
    assert refused.code == 2
    assert "exported: exists already, of other settings, and is never written over" in refused.one_line()
