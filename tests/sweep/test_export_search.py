"""The export search on a real trained checkpoint: what it chooses, from which tokens, and that it can be repeated."""

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch

from golfray.core.byte_table import load_byte_table
from golfray.core.codec import compress
from golfray.core.container import write_part
from golfray.core.exporter import export_state, load_artifact
from golfray.core.gang import Gang
from golfray.core.model import build_model
from golfray.core.score import score_model
from golfray.core.settings import settings_from_dict
from golfray.core.shards import TokenStream, list_shards, load_validation_tokens
from golfray.core.tensor_rules import class_of
from golfray.sweep.export_reserve import reserve_tokens
from golfray.sweep.export_scoring import ReserveScorer
from golfray.sweep.export_search import SearchPlan, search_exports
from golfray.sweep.export_sizes import ExportSizes, Packing, entropy_bytes, packed_size, with_codec
from golfray.sweep.export_space import CLASSES, ExportSpace, base_export
from golfray.sweep.export_tensors import ExportTensors
from tests.threads import one_thread

STEPS = 40
ALONE = Gang(rank=0, world_size=1, device=torch.device("cpu"))
SMALL = SearchPlan(
    ExportSpace(bits_attention=(3, 5), bits_mlp=(3, 5), bits_embedding=(4, 6), clips=("std",), codecs=("zlib", "lzma")),
    settings=16,
    sequences=12,
)


# Searches over a trained model: tens of seconds each on a busy machine.
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def alone_on_one_thread() -> Iterator[None]:
    """Small shapes are slower on many threads than on one."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def trained(trained_folder):
    """Weights and settings of a finished tiny trial, whose matrices are quantized."""
    settings = settings_from_dict(json.loads((trained_folder / "settings.json").read_text()))
    export = dataclasses.replace(settings.export, keep_float_max_numel=256, scale_floor=0.0, gptq_batches=2)
    state = torch.load(trained_folder / "checkpoint.pt", weights_only=True)
    return state, dataclasses.replace(settings, export=export)


@pytest.fixture(scope="module")
def search(trained):
    """One small search, at a cap of about half of the size at 8 bits."""
    state, settings = trained
    cap = len(export_state(state, base_export(settings.export))) // 2
    return search_exports(state, settings, steps=STEPS, max_bytes=cap, plan=SMALL), cap


def test_the_chosen_export_fits_is_the_best_that_does_and_is_what_its_settings_make(trained, search) -> None:
    state, settings = trained
    result, cap = search
    chosen = result.chosen
    assert chosen is not None
    assert len(result.artifact) == chosen.bytes <= cap
    whole = [each for each in result.tried if each.sequences == result.sequences]
    assert chosen.bits_per_byte == min(each.bits_per_byte for each in whole if each.bytes <= cap)
    assert result.best_at(cap) == chosen
    assert len({each.export for each in result.tried}) == len(result.tried) >= 16
    loaded = load_artifact(result.artifact)
    if not chosen.export.gptq:
        assert export_state(state, chosen.export) == result.artifact
    assert loaded.keys() == state.keys()
    # Its score on validation is that of the artifact, as golfray score has it.
    model = build_model(settings.model, torch.float32, ALONE.device)
    model.load_state_dict(loaded)
    tokens = load_validation_tokens(list_shards(Path(settings.data.folder), "val"), settings.batch.seq_len)
    table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
    score = score_model(model, tokens, table, settings.batch, ALONE)
    assert result.validation is not None
    assert result.validation.bits_per_byte == pytest.approx(score.bits_per_byte, abs=1e-5)


def test_k_is_turned_until_the_size_lies_just_below_the_cap(search) -> None:
    result, cap = search
    landed = [each for each in result.tried if each.landed]
    assert landed, result.landing
    assert all(each.bytes <= cap for each in landed)
    # Two in a thousand of this tiny model are a dozen bytes, which a step of k may jump over: then it says so.
    assert any(each.bytes >= cap * 0.998 for each in landed) or "as near as it comes" in result.landing


def test_the_same_seed_is_the_same_search_and_another_reserves_other_tokens(trained, search) -> None:
    state, settings = trained
    result, cap = search
    again = search_exports(state, settings, steps=STEPS, max_bytes=cap, plan=SMALL)
    assert dataclasses.replace(again, seconds={}) == dataclasses.replace(result, seconds={})
    other = reserve_tokens(settings, STEPS, 12, 1).tokens
    assert not numpy.array_equal(other, reserve_tokens(settings, STEPS, 12, 0).tokens)


def test_candidates_are_raced_instead_of_proposals_and_a_cap_below_all_chooses_nothing(trained) -> None:
    state, settings = trained
    base = base_export(settings.export)
    given = [dataclasses.replace(base, bits_mlp=bits, clip_mlp="max") for bits in (3, 4, 5, 6)]
    plan = dataclasses.replace(SMALL, space=ExportSpace(codecs=("zlib",)))
    result = search_exports(state, settings, steps=None, max_bytes=10, plan=plan, candidates=given)
    assert (result.chosen, result.validation) == (None, None)
    # What is left is the smallest.
    assert result.exported == result.front()[0]
    assert len(result.artifact) == result.exported.bytes == min(each.bytes for each in result.front())
    assert {base_export(each.export) for each in result.tried} == set(given)
    assert result.best_at(10) is None
    assert result.trained_on
    json.dumps(result.to_dict(), allow_nan=False)


def test_choices_that_float16_cannot_hold_are_left_out_and_said(trained) -> None:
    """Weights of 1e5 in one class: its table of 16 bits has no float16, its integers have steps."""
    state, settings = trained
    huge = {**state, "tok_emb.weight": state["tok_emb.weight"].clone()}
    huge["tok_emb.weight"][0, 0] = 1e5
    space = dataclasses.replace(SMALL.space, bits_embedding=(6, 16), clips=("max",), gptq=(False,))
    heard: list[str] = []
    result = search_exports(
        huge, settings, steps=STEPS, max_bytes=10**6, plan=dataclasses.replace(SMALL, space=space), tell=heard.append
    )
    assert {each.export.bits_embedding for each in result.tried} == {6}
    assert "left out: tok_emb.weight is not finite as float16; such weights cannot be exported" in heard
    only = dataclasses.replace(space, bits_embedding=(16,))
    with pytest.raises(ValueError, match=r"tok_emb\.weight is not finite as float16"):
        search_exports(huge, settings, steps=STEPS, max_bytes=10**6, plan=dataclasses.replace(SMALL, space=only))


def test_the_reserve_is_what_the_run_did_not_reach(trained) -> None:
    _, settings = trained
    stream = TokenStream(list_shards(Path(settings.data.folder), "train"))
    width = settings.batch.seq_len + 1
    reached = STEPS * (settings.batch.tokens + settings.batch.slices)
    unread = {stream.read(start, width).tobytes() for start in range(reached, stream.total_tokens - width + 1)}
    reserve = reserve_tokens(settings, STEPS, 32, 3)
    assert reserve.tokens.shape == (32, width)
    assert not reserve.trained_on
    assert all(row.astype(numpy.int64).tobytes() in unread for row in reserve.tokens)
    assert "did not reach" in reserve.description


@pytest.mark.parametrize("steps", [None, 10**6])
def test_tokens_that_may_have_been_trained_on_are_said_to_be_and_are_not_calibrated_on(trained, steps) -> None:
    _, settings = trained
    reserve = reserve_tokens(settings, steps, 32, 3)
    assert reserve.trained_on
    assert "may have been trained on" in reserve.description
    rows = {row.astype(numpy.int64)[:-1].tobytes() for row in reserve.tokens}
    assert not any(row.numpy().tobytes() in rows for batch in reserve.calibration for row in batch)
    assert len(reserve.calibration) == 2


def test_scores_of_a_slice_are_those_of_the_scorer_and_parts_add_up(trained) -> None:
    state, settings = trained
    reserve = reserve_tokens(settings, STEPS, 20, 0)
    model = build_model(settings.model, torch.float32, ALONE.device)
    table = load_byte_table(settings.data.tokenizer, settings.model.vocab_size)
    scorer = ReserveScorer(model, state, reserve.tokens, table)
    whole = scorer.nats({}, 0, 20)
    assert numpy.allclose(numpy.concatenate([scorer.nats({}, 0, 7), scorer.nats({}, 7, 20)]), whole, rtol=1e-6)
    # However many threads there are.
    assert numpy.array_equal(ReserveScorer(model, state, reserve.tokens, table, 3).nats({}, 0, 20), whole)
    with torch.inference_mode():
        rows = torch.from_numpy(reserve.tokens.astype(numpy.int64))
        loss = float(model(rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    assert whole.sum() / (20 * settings.batch.seq_len) == pytest.approx(loss, rel=1e-5)
    text_bytes = sum(table.count(row[:-1], row[1:]) for row in reserve.tokens)
    assert scorer.bits_per_byte(whole) == pytest.approx(whole.sum() / math.log(2) / text_bytes)
    assert scorer.standard_error(whole, whole) == 0.0
    # A weight that is said to be another is, and the next call has the float one again.
    zeros = {"tok_emb.weight": torch.zeros_like(state["tok_emb.weight"])}
    assert not numpy.allclose(scorer.nats(zeros, 0, 20), whole)
    assert numpy.array_equal(scorer.nats({}, 0, 20), whole)


def test_sizes_of_all_codecs_are_those_of_the_artifacts_to_the_byte(trained) -> None:
    """No artifact is made for them: classes are packed by themselves, and shared by the settings that have them."""
    state, settings = trained
    tensors = ExportTensors(state, lambda: pytest.fail("no Hessians are needed"))
    sizes = ExportSizes(tensors, ("zlib", "lzma", "zstd", "brotli"), (False, True))
    base = dataclasses.replace(base_export(settings.export), **{f"clip_{kind}": "max" for kind in CLASSES})
    exports = [dataclasses.replace(base, bits_mlp=mlp, bits_attention=other) for mlp in (3, 7) for other in (2, 5, 16)]
    exports.append(dataclasses.replace(base, group_size=8, bits_embedding=16, clip_mlp="std"))
    exports.append(dataclasses.replace(base, overrides="blocks.0.* bits=3; *.c_k.* bits=8 k=5 clip=std"))
    sizes.learn(exports)
    for export in exports:
        made = {
            packing: export_state(state, with_codec(export, packing.codec, packing.shuffle))
            for packing in sizes.packings
        }
        assert sizes.sizes(export) == {packing: len(artifact) for packing, artifact in made.items()}
        for packing, artifact in made.items():
            assert sizes.artifact(with_codec(export, packing.codec, packing.shuffle)) == artifact
        assert sizes.smallest(export) == min(map(len, made.values()))
        assert len(export_state(state, sizes.best_export(export))) == sizes.smallest(export)
        assert sizes.by_codec(export)["brotli"] == min(len(made[Packing("brotli", each)]) for each in (False, True))
    # Entropy is a bound on what a code of single integers can do.
    code = tensors.stored(tensors.key("tok_emb.weight", exports[0]))
    assert entropy_bytes(code) <= code.codes.numel() + 2 * code.scales.numel()


def test_sizes_under_gptq_are_those_of_the_artifacts(trained) -> None:
    state, settings = trained
    draw = torch.Generator().manual_seed(1)
    widths = {name: tensor.shape[1] for name, tensor in state.items() if "mlp" in name and tensor.ndim == 2}
    inputs = {name: torch.randn(200, width, generator=draw) for name, width in widths.items()}
    hessians = {name: some.T @ some for name, some in inputs.items()}
    sizes = ExportSizes(ExportTensors(state, lambda: hessians), ("zlib", "brotli"), (True,))
    export = dataclasses.replace(base_export(settings.export), gptq=True, bits_mlp=4)
    for packing, size in sizes.sizes(export).items():
        assert size == len(export_state(state, with_codec(export, packing.codec, packing.shuffle), hessians))


def test_a_small_dictionary_makes_the_same_bytes(trained) -> None:
    state, settings = trained
    tensors = ExportTensors(state, lambda: pytest.fail("no Hessians are needed"))
    content = write_part(tensors.class_tensors(tensors.class_key("mlp", base_export(settings.export))), {}, False)
    for part in (content, content[:5000], b"a"):
        assert packed_size(part, "lzma") == len(compress(part, "lzma", 9))


def test_every_tensor_has_the_class_of_its_settings(trained) -> None:
    state, _ = trained
    found = {name: class_of(name) for name in state}
    assert found["tok_emb.weight"] == "embedding"
    assert found["blocks.0.attn.c_q.weight"] == "attention"
    assert found["blocks.0.mlp.fc.weight"] == "mlp"


def test_no_room_beside_the_code_and_empty_plans_are_refused(trained) -> None:
    state, settings = trained
    with pytest.raises(ValueError, match="the code alone fills the cap"):
        search_exports(state, settings, steps=STEPS, max_bytes=0)
    with pytest.raises(ValueError, match="settings >= 1 and sequences >= 2"):
        SearchPlan(sequences=1)
