"""The network and its optimizers: causality, groups, gradients, accumulation."""

import copy
import pathlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golfray.core.gang import Gang
from golfray.core.loop import Trainer
from golfray.core.model import build_model, is_control
from golfray.core.muon import Muon, orthogonalize
from golfray.core.optimizers import Optimizers, parameter_groups
from golfray.core.settings import ModelSettings, MuonSettings
from golfray.core.shards import TokenStream, list_shards

CPU = torch.device("cpu")


def lively_model(dtype: torch.dtype = torch.float32, seed: int = 0, **changes):
    """A small model in which no weight is zero, so that everything reaches the output."""
    torch.manual_seed(seed)
    shape = {"vocab_size": 50, "num_layers": 4, "model_dim": 32, "num_heads": 4, "num_kv_heads": 2, **changes}
    model = build_model(ModelSettings(**shape), dtype, CPU)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


@settings(max_examples=25)
@given(
    st.integers(1, 15),
    st.integers(0, 1000),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([{}, {"tie_embeddings": False}, {"num_kv_heads": 4}, {"num_layers": 3}, {"num_layers": 1}]),
)
def test_the_future_does_not_reach_the_past(position: int, seed: int, dtype: torch.dtype, shape: dict) -> None:
    model = lively_model(dtype, seed, **shape)
    tokens = torch.randint(0, 50, (2, 16))
    changed = tokens.clone()
    changed[:, position:] = (changed[:, position:] + torch.randint(1, 50, (2, 16 - position))) % 50
    with torch.no_grad():
        before, after = (model.logits(ids).view(2, 16, -1) for ids in (tokens, changed))
    assert torch.allclose(before[:, :position], after[:, :position], atol=1e-6, rtol=0)
    assert not torch.allclose(before[:, position:], after[:, position:], atol=1e-3)


def test_logits_are_capped_and_float32() -> None:
    model = lively_model(torch.bfloat16, logit_softcap=2.0)
    logits = model.logits(torch.randint(0, 50, (3, 8)))
    assert (logits.shape, logits.dtype) == ((24, 50), torch.float32)
    assert float(logits.detach().abs().max()) <= 2.0


@pytest.mark.parametrize("shape", [{}, {"tie_embeddings": False}, {"num_layers": 5, "mlp_mult": 1.5}])
def test_every_parameter_is_in_one_group_and_receives_gradient(shape: dict) -> None:
    model = lively_model(**shape)
    groups = parameter_groups(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    grouped = [names[id(parameter)] for members in groups.values() for parameter in members]
    assert sorted(grouped) == sorted(names.values())
    assert [names[id(p)] for p in groups["table"]] == ["tok_emb.weight"]
    assert len(groups["head"]) == (0 if model.settings.tie_embeddings else 1)
    assert all(p.ndim == 2 and not is_control(names[id(p)]) for p in groups["matrix"])
    assert all(is_control(names[id(p)]) for p in groups["scalar"])
    tokens = torch.randint(0, 50, (2, 17))
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().sum()) > 0.0, name


def test_a_parameter_outside_the_groups_is_an_error() -> None:
    model = lively_model()
    model.extra = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(AssertionError, match="extra"):
        parameter_groups(model)


def test_bfloat16_storage_rules() -> None:
    model = build_model(ModelSettings(vocab_size=50, num_layers=2, model_dim=32, num_heads=4), torch.bfloat16, CPU)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.bfloat16 if name == "tok_emb.weight" else torch.float32)
    weight = model.blocks[0].attn.c_q.weight
    assert torch.equal(weight, weight.bfloat16().float())


def test_step_is_the_mean_over_slices(tiny_settings, alone: Gang) -> None:
    run = tiny_settings(optimizer={"adam_fused": False})
    model = lively_model(vocab_size=run.model.vocab_size)
    twin = copy.deepcopy(model)
    stream = TokenStream(list_shards(pathlib.Path(run.data.folder), "train"))
    loss = Trainer(model, model, Optimizers(model, run, alone), stream, run, alone).step(7, 0.5, 0.9)
    losses = [twin(*stream.slice_batch(7 * 4 + number, 128, 32)) for number in range(4)]
    optimizers = Optimizers(twin, run, alone)
    gradients = torch.autograd.grad(sum(losses) / 4, list(twin.parameters()))
    for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizers.step(0.5, 0.9)
    assert float(loss) == pytest.approx(float(sum(losses).detach() / 4), abs=1e-6)
    for name, parameter in model.named_parameters():
        assert parameter.grad is None
        other = dict(twin.named_parameters())[name]
        # Adam's first step and Newton-Schulz in bfloat16 both blow up last-bit differences of the gradients.
        assert torch.allclose(parameter, other, atol=2e-3), name


def test_slices_must_be_shared_out_evenly(tiny_settings) -> None:
    with pytest.raises(ValueError, match="4 is not divisible by 3 ranks"):
        Trainer(None, None, None, None, tiny_settings(), Gang(0, 3, CPU))  # type: ignore[arg-type]


def test_clip_bounds_the_global_norm(tiny_settings, alone: Gang) -> None:
    run = tiny_settings(optimizer={"grad_clip": 0.5})
    model = lively_model(vocab_size=run.model.vocab_size)
    optimizers = Optimizers(model, run, alone)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.clip()
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert float(norm) == pytest.approx(0.5, rel=1e-4)


def test_weight_decay_is_decoupled(tiny_settings, alone: Gang) -> None:
    run = tiny_settings(optimizer={"adam_weight_decay": 0.1, "grad_clip": 0.0}, muon={"weight_decay": 0.2})
    model = lively_model(vocab_size=run.model.vocab_size)
    before = copy.deepcopy(model.state_dict())
    optimizers = Optimizers(model, run, alone)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step(0.5, 0.9)
    factors = {"table": 1 - 0.5 * run.optimizer.tied_embed_lr * 0.1, "scalar": 1 - 0.5 * run.optimizer.scalar_lr * 0.1}
    factors |= {"matrix": 1 - 0.5 * run.optimizer.matrix_lr * 0.2}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group, factor in factors.items():
        for parameter in parameter_groups(model)[group]:
            assert torch.allclose(parameter, before[names[id(parameter)]] * factor, atol=1e-7)


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4), st.integers(0, 1000))
def test_stacked_newton_schulz_is_each_matrix_alone(rows: int, cols: int, count: int, seed: int) -> None:
    stack = torch.randn(count, rows, cols, generator=torch.Generator().manual_seed(seed))
    together = orthogonalize(stack, 5, torch.float32)
    for matrix, result in zip(stack, together, strict=True):
        assert torch.allclose(orthogonalize(matrix[None], 5, torch.float32)[0], result, atol=1e-4)
        values = torch.linalg.svdvals(result) / max(1.0, rows / cols) ** 0.5
        assert float(values.max()) < 1.3


def test_newton_schulz_of_zeros_is_zero() -> None:
    assert not orthogonalize(torch.zeros(2, 3, 5), 5, torch.bfloat16).any()


def test_muon_reset_forgets_momentum(alone: Gang) -> None:
    def after_one_step(steps_before: int) -> torch.Tensor:
        matrix = torch.nn.Parameter(torch.zeros(4, 6))
        muon = Muon([matrix], MuonSettings(ns_dtype="float32"), alone)
        for number in range(steps_before):
            matrix.grad = torch.randn(4, 6, generator=torch.Generator().manual_seed(number))
            muon.step(0.1, 0.9)
        muon.reset()
        with torch.no_grad():
            matrix.zero_()
        matrix.grad = torch.arange(24.0).view(4, 6)
        muon.step(0.1, 0.9)
        return matrix.detach()

    assert torch.equal(after_one_step(0), after_one_step(3))
