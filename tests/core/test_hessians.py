"""Calibration: each weight's Hessian is that of the inputs it meets in a forward pass."""

import pytest
import torch

from golfray.core.gptq import collect_hessians, factor_hessians
from golfray.core.model import GPT, build_model
from golfray.core.settings import ModelSettings

SHAPE = {"vocab_size": 40, "num_layers": 3, "model_dim": 16, "num_heads": 4, "num_kv_heads": 2}


def tiny_model(dtype: torch.dtype = torch.float32, **changes: object) -> GPT:
    torch.manual_seed(0)
    model = build_model(ModelSettings(**{**SHAPE, **changes}), dtype, torch.device("cpu"))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def batches() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(0, 40, (2, 8), generator=draw), torch.randint(0, 40, (3, 5), generator=draw)]


@pytest.mark.parametrize("tied", [True, False])
def test_every_matrix_has_the_hessian_of_its_own_inputs(tied: bool) -> None:
    model = tiny_model(tie_embeddings=tied)
    hessians = collect_hessians(model, iter(batches()))
    matrices = {name for name, parameter in model.named_parameters() if name.endswith(".weight")}
    assert set(hessians) == (matrices if tied else matrices - {"tok_emb.weight"})

    def expected(module: torch.nn.Module) -> torch.Tensor:
        rows: list[torch.Tensor] = []
        hook = module.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].detach().reshape(-1, width)))
        width = module.weight.shape[1]  # type: ignore[union-attr, index]
        for tokens in batches():
            model.logits(tokens)
        hook.remove()
        joined = torch.cat(rows).double()  # type: ignore[arg-type]
        return joined.T @ joined / len(batches())

    for name in (
        "blocks.0.attn.c_q",
        "blocks.1.attn.c_v",
        "blocks.2.attn.proj",
        "blocks.1.mlp.fc",
        "blocks.2.mlp.proj",
    ):
        found = hessians[f"{name}.weight"]
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected(model.get_submodule(name)), rtol=1e-5, atol=1e-5)
    if not tied:
        found = hessians["lm_head.weight"].double()
        torch.testing.assert_close(found, expected(model.lm_head), rtol=1e-5, atol=1e-5)


def test_the_table_has_that_of_the_final_norm() -> None:
    model = tiny_model()
    seen = []
    linear = torch.nn.functional.linear

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is linear and args[1] is model.tok_emb.weight:
                seen.append(args[0].detach())
            return func(*args, **(kwargs or {}))

    with Spy():
        hessians = collect_hessians(model, batches())
    rows = torch.cat(seen).double()
    torch.testing.assert_close(hessians["tok_emb.weight"].double(), rows.T @ rows / 2, rtol=1e-5, atol=1e-5)


def test_layers_with_one_input_share_one_tensor_and_no_hook_is_left() -> None:
    model = tiny_model(torch.bfloat16)
    hessians = collect_hessians(model, batches())
    query, key, value = (hessians[f"blocks.1.attn.{part}.weight"] for part in ("c_q", "c_k", "c_v"))
    assert query is key is value
    assert query.dtype == torch.float32
    assert hessians["blocks.0.attn.c_q.weight"] is not query
    factors = factor_hessians(hessians, 0.01)
    assert factors["blocks.1.attn.c_q.weight"] is factors["blocks.1.attn.c_k.weight"]
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    again = collect_hessians(model, batches())
    assert all(torch.equal(again[name], hessian) for name, hessian in hessians.items())


def test_no_hook_is_left_after_an_error() -> None:
    model = tiny_model()
    with pytest.raises(IndexError):
        collect_hessians(model, [torch.full((1, 4), 99)])
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
