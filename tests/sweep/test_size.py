import dataclasses
import json
import math

import numpy
import pytest
import torch

from golfray.core.exporter import export_state
from golfray.core.frontier import FrontierParts
from golfray.core.gang import Gang
from golfray.core.settings import MuonSettings, RunSettings, StopSettings, settings_from_dict
from golfray.core.trial import export_checkpoint
from golfray.sweep.drawn_weights import walk_of
from golfray.sweep.size import NoSizeForeseen, depends_on_steps, expected_bytes_model, packed_parts, unseen_tokens


def at_bits(settings, attention, mlp, embedding):
    bits = {"bits_attention": attention, "bits_mlp": mlp, "bits_embedding": embedding}
    return dataclasses.replace(settings, export=dataclasses.replace(settings.export, **bits))


def with_optimizer(settings, **fields):
    return dataclasses.replace(settings, optimizer=dataclasses.replace(settings.optimizer, **fields))


@pytest.fixture(scope="module")
def trained(trained_folder, tiny_corpus):
    """Settings and number of steps of a finished tiny trial, its checkpoint, and what it never read."""
    settings = settings_from_dict(json.loads((trained_folder / "settings.json").read_text()))
    result = json.loads((trained_folder / "result.json").read_text())
    steps = int(result["metrics"]["train/steps"])
    unseen = unseen_tokens(tiny_corpus.folder, settings.model.vocab_size, steps * settings.batch.tokens)
    return settings, steps, trained_folder / "checkpoint.pt", unseen


@pytest.mark.parametrize("bits", [(8, 8, 8), (7, 7, 8), (6, 6, 8), (6, 6, 6), (5, 4, 7), (8, 4, 6), (4, 8, 8)])
def test_the_size_of_a_trained_model_is_foreseen_within_the_stated_error(trained, bits) -> None:
    settings, steps, checkpoint, unseen = trained
    settings = at_bits(settings, *bits)
    estimate = expected_bytes_model(settings, steps, unseen)
    real = len(export_checkpoint(checkpoint, settings))
    assert abs(estimate.bytes - real) <= estimate.relative_error * estimate.bytes
    assert 0.02 <= estimate.relative_error < 0.15


@pytest.mark.parametrize("bits", [(8, 8, 8), (6, 3, 7)])
def test_the_size_of_a_flat_artifact_is_that_of_its_own_format(trained, bits) -> None:
    settings, steps, checkpoint, unseen = trained
    settings = at_bits(settings, *bits)
    export = dataclasses.replace(settings.export, format="flat", codec="lzma")
    settings = dataclasses.replace(settings, export=export)
    estimate = expected_bytes_model(settings, steps, unseen)
    real = len(export_checkpoint(checkpoint, settings, FrontierParts(settings, Gang(0, 1, torch.device("cpu")))))
    assert abs(estimate.bytes - real) <= estimate.relative_error * estimate.bytes
    calibrated = dataclasses.replace(settings, export=dataclasses.replace(export, gptq=True))
    rounded = expected_bytes_model(calibrated, steps, unseen)
    assert rounded.bytes == estimate.bytes
    assert rounded.relative_error > estimate.relative_error


def test_fewer_bits_are_fewer_bytes(trained) -> None:
    settings, steps, _, unseen = trained
    sizes = [expected_bytes_model(at_bits(settings, *[bits] * 3), steps, unseen).bytes for bits in (8, 7, 6, 5, 4)]
    assert sizes == sorted(sizes, reverse=True)
    # A bit fewer of each of seven or eight, less what does not compress.
    assert 0.55 < sizes[-1] / sizes[0] < 0.75


def test_it_is_the_same_every_time_and_leaves_the_random_state_alone(trained) -> None:
    settings, steps, _, unseen = trained
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (expected_bytes_model(settings, steps, unseen) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("sigma", "floor", "per_weight"),
    [
        # Bell-shaped rows of 512 under int8 and zlib 9, section 3.6 of the parameter-golf reference.
        *((0.02, 1 / 127, 0.49), (0.05, 1 / 127, 0.65), (0.1, 1 / 127, 0.73), (0.2, 1 / 127, 0.85)),
        *((0.3, 1 / 127, 0.92), (0.02, 0.0, 0.927), (0.3, 0.0, 0.927)),
    ],
)
def test_small_weights_under_the_references_floor_are_fewer_bytes(sigma, floor, per_weight) -> None:
    draw = torch.Generator().manual_seed(1)
    state = {"blocks.0.mlp.fc.weight": sigma * torch.randn(512, 512, generator=draw)}
    parts = packed_parts(state, dataclasses.replace(RunSettings().export, scale_floor=floor))
    assert parts["mlp"] / 512**2 == pytest.approx(per_weight, abs=0.012)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "steps", "known"),
    [
        # Model bytes of the baseline and of its low-rate record, from their published logs.
        ({}, 13_780, 15_815_847),
        ({"matrix_lr": 0.02, "scalar_lr": 0.02, "tied_embed_lr": 0.03}, 14_421, 15_803_327),
    ],
)
def test_the_reference_at_full_scale(rates, steps, known) -> None:
    estimate = expected_bytes_model(with_optimizer(RunSettings(), **rates), steps)
    assert abs(estimate.bytes - known) <= estimate.relative_error * known


@pytest.mark.slow
def test_an_early_checkpoint_of_the_reference_is_small_and_less_certain() -> None:
    # 10.5 MB after 100 steps at full rates: the quantization step has a floor that small weights do not reach.
    settings = dataclasses.replace(RunSettings(), stop=StopSettings(steps=20_000, seconds=None))
    estimate = expected_bytes_model(settings, 100)
    assert abs(estimate.bytes - 10_500_000) <= estimate.relative_error * estimate.bytes
    assert estimate.relative_error > 0.05


def constant_rate(steps: int, momentum: float, weight_decay: float = 0.0, matrix_lr: float = 0.1) -> RunSettings:
    muon = MuonSettings(momentum, momentum, 0, weight_decay=weight_decay)
    settings = dataclasses.replace(RunSettings(), muon=muon, stop=StopSettings(steps, None))
    settings = dataclasses.replace(settings, schedule=dataclasses.replace(settings.schedule, warmdown_steps=0))
    return with_optimizer(settings, matrix_lr=matrix_lr)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_the_walk_grows_with_the_root_of_the_steps(momentum) -> None:
    walk = walk_of(constant_rate(40_000, momentum), 40_000)
    coherent = (1 + momentum) / (1 - momentum)
    assert walk.muon == pytest.approx(0.1 * math.sqrt(40_000 * coherent), rel=0.01)
    assert walk.adam == pytest.approx(200.0)
    assert walk.decayed == 0.0


def test_momentum_adds_nothing_before_there_is_any_history() -> None:
    assert walk_of(constant_rate(1, 0.99), 1).muon == pytest.approx(0.1 * math.sqrt(2))


def test_decay_bounds_the_walk() -> None:
    # A walk of variance v a step that loses 2 d of it a step comes to rest at v / (2 d).
    walk = walk_of(constant_rate(20_000, 0.0, weight_decay=0.02), 20_000)
    assert walk.decayed == pytest.approx(0.1 * 0.02 * 20_000)
    assert walk.muon == pytest.approx(0.1 / math.sqrt(2 * 0.1 * 0.02), rel=0.1)


@pytest.mark.parametrize("rate", [0.0, 1e30, 1e155, 1.7e308])
def test_absurd_rates_have_a_size_too(trained, rate) -> None:
    settings, steps, _, unseen = trained
    absurd = with_optimizer(settings, matrix_lr=rate, scalar_lr=rate, tied_embed_lr=rate)
    assert expected_bytes_model(absurd, steps, unseen).bytes > 1000


@pytest.mark.parametrize("changes", [{"clip_k_mlp": 1e300}, {"bits_embedding": 16}])
def test_drawn_weights_that_float16_cannot_hold_are_one_error(trained, changes) -> None:
    settings = trained[0]
    export = {"format": "flat", "scale_floor": 0.0, "clip_mlp": "std", **changes}
    settings = dataclasses.replace(
        settings,
        model=dataclasses.replace(settings.model, tied_embed_init_std=1e6 if "bits_embedding" in changes else 0.005),
        export=dataclasses.replace(settings.export, **export),
    )
    with pytest.raises(
        NoSizeForeseen, match=r"(mlp|tok_emb).* not finite as float16.*; lower .*export.clip_k_"
    ) as told:
        expected_bytes_model(settings, 20)
    assert told.value.exit_code == 2


def test_an_untied_head_is_part_of_it(trained) -> None:
    settings, steps, _, unseen = trained
    untied = dataclasses.replace(settings, model=dataclasses.replace(settings.model, tie_embeddings=False))
    more = expected_bytes_model(untied, steps, unseen).bytes - expected_bytes_model(settings, steps, unseen).bytes
    assert more > 0.4 * settings.model.vocab_size * settings.model.model_dim


def test_unseen_tokens_are_those_that_the_run_does_not_read(tmp_path) -> None:
    header = numpy.zeros(256, dtype="<i4")
    for index, tokens in enumerate(([1, 2, 2], [5, 0])):
        header[:3] = 20240520, 1, len(tokens)
        content = header.tobytes() + numpy.array(tokens, dtype="<u2").tobytes()
        (tmp_path / f"fineweb_train_{index:06d}.bin").write_bytes(content)
    assert unseen_tokens(tmp_path, 7, 3) == (0, 3, 4, 5, 6)
    assert unseen_tokens(tmp_path, 7, 10**12) == (3, 4, 6)


def flat(settings, **changes):
    fields = {"format": "flat", "scale_floor": 0.0, **changes}
    return dataclasses.replace(settings, export=dataclasses.replace(settings.export, **fields))


STD = {f"clip_{part}": "std" for part in ("attention", "mlp", "embedding")}
MATRICES = ("bits_attention", "bits_mlp", "bits_embedding")


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("closed form", STD),
        ("closed form", {**STD, **dict.fromkeys(MATRICES, 6), "codec": "lzma", "group_size": 16}),
        ("closed form", {**STD, **dict.fromkeys(MATRICES, 5), "clip_k_mlp": 6.0, "overrides": "*.c_k.* bits=8"}),
        ("drawn weights", {}),
        ("drawn weights", {**dict.fromkeys(MATRICES, 6), "clip_mlp": "best", "clip_attention": "max"}),
        ("drawn weights", {**STD, "clip_embedding": "max", "bits_mlp": 5, "codec": "lzma", "shuffle": True}),
        ("drawn weights", {**STD, "scale_floor": 0.01, "bits_mlp": 6}),
    ],
)
def test_a_flat_artifact_is_foreseen_within_the_stated_error(trained, method, changes) -> None:
    settings, steps, checkpoint, unseen = trained
    settings = flat(settings, **changes)
    estimate = expected_bytes_model(settings, steps, unseen)
    real = len(export_state(torch.load(checkpoint, weights_only=True), settings.export))
    assert estimate.method == method
    assert abs(estimate.bytes - real) <= estimate.relative_error * estimate.bytes, (real, estimate)
    assert estimate.relative_error < 0.26
    assert depends_on_steps(settings) == (method == "drawn weights")


@pytest.mark.parametrize("changes", [{"format": "reference"}, {}, STD])
def test_the_parts_are_the_whole(trained, changes) -> None:
    settings, steps, _, unseen = trained
    estimate = expected_bytes_model(flat(settings, **changes), steps, unseen)
    assert sum(estimate.parts.values()) == estimate.bytes
    assert {"attention", "mlp", "embedding", "kept"} <= estimate.parts.keys()
    assert all(taken > 0 for taken in estimate.parts.values())


def test_fewer_bits_of_a_class_take_bytes_of_that_class(trained) -> None:
    settings, steps, _, unseen = trained
    for changes in ({"format": "reference"}, {}, STD):
        more, less = (
            expected_bytes_model(flat(settings, **changes, bits_mlp=bits), steps, unseen).parts for bits in (8, 5)
        )
        assert less["mlp"] < 0.75 * more["mlp"]
        assert less["attention"] == pytest.approx(more["attention"], rel=0.1)


def test_under_standard_deviations_steps_do_not_matter(trained) -> None:
    settings, steps, _, unseen = trained
    assert expected_bytes_model(flat(settings, **STD), steps, unseen) == expected_bytes_model(
        flat(settings, **STD), 100 * steps, unseen
    )


@pytest.mark.parametrize("changes", [{"bits_mlp": 6, "clip_mlp": "best"}, {"format": "reference"}])
def test_some_rows_of_a_large_model_stand_for_all(trained, monkeypatch, changes) -> None:
    settings, steps, _, unseen = trained
    settings = flat(settings, **changes)
    all_rows = expected_bytes_model(settings, steps, unseen)
    monkeypatch.setattr("golfray.sweep.size._MOST_DRAWN", 20_000)
    some = expected_bytes_model(settings, steps, unseen)
    # What a saved container has beside the numbers is much of so small a model.
    whole = all_rows.bytes - (3_000 if changes.get("format") == "reference" else 0)
    assert some.bytes == pytest.approx(whole, rel=0.05)
    assert some.parts["mlp"] == pytest.approx(all_rows.parts["mlp"], rel=0.15)
