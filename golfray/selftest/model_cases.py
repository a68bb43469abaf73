"""Cases about the network and its optimizers: forward, train, bf16, initial_values, muon."""

import pathlib
import tempfile
from typing import Any

import torch

from golfray.core.model import build_model
from golfray.core.muon import Muon, orthogonalize
from golfray.core.settings import MuonSettings
from golfray.selftest.inputs import formula_tensor, formula_tokens, write_formula_shards
from golfray.selftest.sections import Case, Context, Section, describe_config
from golfray.selftest.training import ALONE, formula_model, model_settings, train_steps, training_settings


def formula_batch(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Formula tokens and the same shifted by one, int64 of shape (batch, seq_len)."""
    batch, seq_len = case["batch"], case["seq_len"]
    tokens = torch.from_numpy(formula_tokens(batch * seq_len + 1, case["config"]["vocab_size"]))
    return tokens[:-1].reshape(batch, seq_len), tokens[1:].reshape(batch, seq_len)


def compute_forward(case: Case, context: Context) -> dict[str, Any]:
    """Loss, shapes and gradient norms in float32."""
    model = formula_model(case["config"], case["weight_scale"])
    loss = model(*formula_batch(case))
    loss.backward()
    parameters = dict(model.named_parameters())
    return {
        "loss_fp32": float(loss.detach()),
        "n_params": sum(parameter.numel() for parameter in parameters.values()),
        "param_names_and_shapes": {name: list(parameter.shape) for name, parameter in parameters.items()},
        "grad_norms_fp32": {name: gradient_norm(parameter) for name, parameter in parameters.items()},
    }


def gradient_norm(parameter: torch.nn.Parameter) -> float:
    """Euclidean norm of a gradient, accumulated in float64; 0 for a parameter that received none."""
    return 0.0 if parameter.grad is None else float(parameter.grad.double().norm())


def compute_train(case: Case, context: Context) -> dict[str, Any]:
    """Losses of some steps from formula weights on formula shards, and the parameter norms after them."""
    losses, state = train_on_formula(case)
    return {"losses": losses, "param_norms_after": state_norms(state)}


def train_on_formula(case: Case) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of as many steps as the case has, and the weights they end with."""
    model = formula_model(case["config"], case["weight_scale"])
    with tempfile.TemporaryDirectory() as folder:
        paths = write_formula_shards(pathlib.Path(folder), case["shard_lengths"], case["config"]["vocab_size"])
        losses = list(train_steps(model, training_settings(case, len(case["losses"])), paths))
    return losses, model.state_dict()


def state_norms(state: dict[str, torch.Tensor]) -> dict[str, float]:
    """Euclidean norm of every tensor, accumulated in float64."""
    return {name: float(tensor.double().norm()) for name, tensor in state.items()}


def trained_state(index: int, context: Context) -> dict[str, torch.Tensor]:
    """The weights after train case ``index`` of the same file; trained once a file."""
    if index not in context.trained:
        _, context.trained[index] = train_on_formula(context.sections["train"][index])
    return context.trained[index]


def compute_bf16(case: Case, context: Context) -> dict[str, Any]:
    """Loss and storage under the baseline's precision rules."""
    model = formula_model(case["config"], case["weight_scale"], torch.bfloat16)
    with torch.no_grad():
        loss = float(model(*formula_batch(case)))
    state = model.state_dict()
    return {
        "loss_bf16_autocast": loss,
        "dtypes": {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in state.items()},
        "state_dict_order": list(state),
    }


def was_drawn(tensor: Case) -> bool:
    """Whether a tensor's values come from the random generator: all such draws lie on both sides of zero."""
    return bool(tensor["min"] < 0.0 < tensor["max"])


def expected_initial_values(case: Case) -> dict[str, Any]:
    """Statistics that do not depend on the draw; where nothing was drawn, the extremes too, as field "zeros"."""
    tensors = {}
    for name, tensor in case["tensors"].items():
        fields = {field: value for field, value in tensor.items() if field not in ("min", "max")}
        if not was_drawn(tensor):
            fields["zeros"] = [tensor["min"], tensor["max"]]
        tensors[name] = fields
    return {**case, "tensors": tensors}


def compute_initial_values(case: Case, context: Context) -> dict[str, Any]:
    """The same statistics of a fresh float32 model, for the tensors that the case names."""
    torch.manual_seed(case["seed"])
    state = build_model(model_settings(case["config"]), torch.float32, ALONE.device).state_dict()
    tensors: dict[str, Any] = {}
    for name, expected in case["tensors"].items():
        if name not in state:
            continue
        values = state[name].double()
        tensors[name] = {"shape": list(values.shape), "mean": float(values.mean()), "std": float(values.std())}
        if not was_drawn(expected):
            tensors[name]["zeros"] = [float(values.min()), float(values.max())]
    return {"tensors": tensors}


def compute_muon(case: Case, context: Context) -> dict[str, Any]:
    """One matrix under Muon, and the singular values that Newton-Schulz gives its first gradient."""
    shape = case["shape"]
    matrix = torch.nn.Parameter(formula_tensor(0, shape, 0.1))
    settings = MuonSettings(ns_dtype="bfloat16", weight_decay=0.0)
    muon = Muon([matrix], settings, ALONE)
    steps = []
    for step in range(len(case["steps"])):
        matrix.grad = formula_tensor(step + 1, shape, 1.0)
        muon.step(case["lr"], case["momentum"])
        steps.append({"norm": float(matrix.detach().double().norm()), "first5": matrix.detach().flatten()[:5].tolist()})
    gradient = formula_tensor(1, shape, 1.0)
    # Lying, the matrix has the same singular values and no shape factor, which bfloat16 could not divide out again.
    lying = gradient.T if shape[0] > shape[1] else gradient
    values = torch.linalg.svdvals(orthogonalize(lying[None], settings.ns_steps, torch.bfloat16)[0].double()).tolist()
    return {"steps": steps, "newton_schulz_singular_values_of_first_gradient": values[:6] + values[-2:]}


FORWARD = Section(frozenset({"config", "batch", "seq_len", "weight_scale"}), describe_config, compute_forward)
TRAIN = Section(
    frozenset({"config", "batch", "seq_len", "weight_scale", "lrs", "muon_momentum", "adam", "shard_lengths"}),
    lambda case: f"{describe_config(case)}, {len(case['losses'])} steps",
    compute_train,
)
BF16 = Section(frozenset({"config", "batch", "seq_len", "weight_scale"}), describe_config, compute_bf16)
INITIAL_VALUES = Section(
    frozenset({"config", "seed"}), describe_config, compute_initial_values, expected=expected_initial_values
)
MUON = Section(
    frozenset({"shape", "lr", "momentum"}),
    lambda case: f"{case['shape'][0]}x{case['shape'][1]}, {len(case['steps'])} steps",
    compute_muon,
)
