"""Files with other shapes, vocabularies, tokenizers, step counts and tolerances, recorded here from core itself."""

import copy
import shutil
from typing import Any

import numpy
import pytest

from golfray.selftest.errors import SelftestError
from golfray.selftest.runner import SECTIONS, format_result, run_vectors
from golfray.selftest.sections import Context

CONFIG = {
    "vocab_size": 77,
    "num_layers": 5,
    "model_dim": 24,
    "num_heads": 6,
    "num_kv_heads": 3,
    "mlp_mult": 1.5,
    "tie_embeddings": False,
    "tied_embed_init_std": 0.01,
    "logit_softcap": 15.0,
    "rope_base": 500.0,
    "qk_gain_init": 1.25,
}
TRAINING = {
    "lrs": {"tok": 0.1, "matrix": 0.03, "scalar": 0.02, "head": 0.004},
    "muon_momentum": {"start": 0.7, "end": 0.9, "warmup_steps": 3},
    "adam": {"betas": [0.8, 0.97], "eps": 1e-7},
}
CASES: dict[str, dict[str, Any]] = {
    "forward": {"config": CONFIG, "batch": 3, "seq_len": 10, "weight_scale": 0.07},
    "bf16": {"config": {**CONFIG, "tie_embeddings": True}, "batch": 1, "seq_len": 9, "weight_scale": 0.03},
    "train": {
        "config": CONFIG,
        "batch": 2,
        "seq_len": 11,
        "weight_scale": 0.06,
        **TRAINING,
        "shard_lengths": [31, 40, 7],
        "losses": [0.0] * 4,
    },
    "int8_zlib": {"label": "ours", "state": {"from": "train", "index": 0}, "passthrough": {}},
    "muon": {"shape": [9, 4], "lr": 0.1, "momentum": 0.5, "steps": [{}] * 4},
    "quantizer": {
        "state_dict": [
            {"name": "a.weight", "k": 3, "shape": [70, 1000], "kind": "rows", "dtype": "bfloat16"},
            {"name": "b.weight", "k": 4, "shape": [66000], "kind": "flat", "dtype": "float16"},
            {"name": "c", "k": 5, "shape": [2, 2], "kind": "int", "dtype": "int32"},
        ]
    },
    "loader": {
        "shard_lengths": [50, 61],
        "vocab": 13,
        "world_size": 4,
        "global_tokens": 96,
        "seq_len": 6,
        "grad_accum_steps": 2,
        "batches": [{"call": 5, "rank": 3}],
    },
    "validation_split": {"total_sequences": 11, "world_size": 3},
    "lr_schedule": {
        "step": 70,
        "elapsed_ms": 35.0,
        "iterations": 100,
        "warmdown_iters": 60,
        "max_wallclock_ms": 50.0,
    },
    "momentum_schedule": {"step": 1, "start": 0.5, "end": 0.75, "warmup_steps": 4},
    "initial_values": {
        "config": {**CONFIG, "vocab_size": 300, "model_dim": 48},
        "seed": 5,
        "tensors": {name: {"min": 0.0, "max": 0.0} for name in ("tok_emb.weight", "skip_weights", "lm_head.weight")},
    },
}


def record(name: str, case: dict[str, Any], context: Context) -> dict[str, Any]:
    """The case with what core computes for it."""
    return {**case, **SECTIONS[name].compute(case, context)}


@pytest.fixture
def recorded() -> dict[str, Any]:
    """A file with one case a section, in shapes that no shipped case has, and tolerances of its own."""
    context = Context({name: [copy.deepcopy(case)] for name, case in CASES.items()}, None)
    content: dict[str, Any] = {"format": "golfray-vectors/1", "tol": {}}
    for name, (case,) in context.sections.items():
        content[name] = [record(name, case, context)]
        content["tol"][name] = {"*": {"rel": 1e-6, "abs": 1e-9}}
    drawn = content["initial_values"][0]["tensors"]
    for fields in drawn.values():
        low, high = fields.pop("zeros")
        fields.update(min=low, max=high)
    content["tol"]["train"]["losses"] = [{"first": 2, "rel": 1e-6}, {"rest": True, "rel": 1e-5}]
    return content


def test_other_shapes_and_step_counts(recorded, write) -> None:
    results = list(run_vectors(write(recorded)))
    assert [format_result(result) for result in results if not result.ok] == []
    assert {result.section for result in results} == set(CASES)


def test_rounding_of_the_very_recorded_weights_has_the_files_tolerance(recorded, write) -> None:
    content = {key: recorded[key] for key in ("format", "tol", "train", "int8_zlib")}
    content["int8_zlib"][0]["dequantized_max_abs_error"]["tok_emb.weight"] += 1e-6
    results = list(run_vectors(write(content)))
    assert [(result.ok, result.note) for result in results] == [(True, ""), (False, "")]


def test_the_tolerance_comes_from_the_file(recorded, write) -> None:
    content = {key: recorded[key] for key in ("format", "tol", "forward")}
    content["forward"][0]["loss_fp32"] *= 1.001
    (result,) = run_vectors(write(content))
    assert (result.ok, result.worst_field) == (False, "loss_fp32")
    content["tol"]["forward"]["loss_fp32"] = {"rel": 0.01}
    (result,) = run_vectors(write(content))
    assert (result.ok, result.tolerance, result.measure) == (True, 0.01, "rel")


@pytest.fixture
def real_text(tiny_corpus, tmp_path):
    """A file with one real_text case on the tiny corpus and its own tokenizer, and its data folder."""
    data = tmp_path / "data"
    shutil.copytree(tiny_corpus.folder, data / "corpora" / "tiny", ignore=shutil.ignore_patterns("*.model", "*.vocab"))
    (data / "tokenizers").mkdir()
    shutil.copy(tiny_corpus.tokenizer, data / "tokenizers")
    case = {
        "dataset": "corpora/tiny",
        "tokenizer": f"tokenizers/{tiny_corpus.tokenizer.name}",
        "config": {**CONFIG, "vocab_size": tiny_corpus.vocab_size, "num_layers": 2},
        "batch": 4,
        "seq_len": 48,
        "weight_scale": 0.05,
        **TRAINING,
        "train_losses": [0.0] * 3,
    }
    tolerances = {"train_losses": [{"first": 1, "rel": 1e-5}, {"rest": True, "rel": 1e-4}], "*": {"rel": 1e-4}}
    content = {"format": "golfray-vectors/1", "tol": {"real_text": tolerances}}
    content["real_text"] = [record("real_text", case, Context({}, data))]
    return content, data


def test_real_text_on_another_corpus_and_tokenizer(real_text, write, tiny_corpus) -> None:
    content, data = real_text
    (result,) = run_vectors(write(content), data)
    assert result.ok, format_result(result)
    validation = content["real_text"][0]["validation"]
    assert validation["tokens"] == (tiny_corpus.val_tokens - 1) // 48 * 48
    assert validation["bpb"] == pytest.approx(
        validation["loss"] * validation["tokens"] / (numpy.log(2.0) * validation["bytes"])
    )
    for place in (("validation", "bytes"), ("after_int8_zlib", "bpb"), ("train_losses", 2)):
        spoilt = copy.deepcopy(content)
        spoilt["real_text"][0][place[0]][place[1]] *= 1.01
        (result,) = run_vectors(write(spoilt), data)
        assert not result.ok
        assert result.worst_field in (".".join(map(str, place)), f"{place[0]}[{place[1]}]")


def test_real_text_without_its_data(real_text, write, tmp_path) -> None:
    content, data = real_text
    path = write(content)
    with pytest.raises(SelftestError, match="--data DIR"):
        run_vectors(path)
    with pytest.raises(SelftestError, match="no such folder"):
        run_vectors(path, tmp_path / "absent")
    with pytest.raises(SelftestError, match=r"corpora/tiny: no fineweb_train"):
        run_vectors(path, tmp_path)
    next((data / "tokenizers").iterdir()).unlink()
    with pytest.raises(SelftestError, match="no such tokenizer"):
        run_vectors(path, data)
