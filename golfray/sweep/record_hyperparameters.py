"""What a public record ran with, from its logs and its script, in the words of golfray's settings.

A log has what the run resolved: a block of ``name: value`` lines below ``Hyperparameters:``, or words ``name:value`` on
the lines that the stock script prints. A script has defaults, ``os.environ.get("NAME", default)``, which the
environment of the run may have overridden: two records with one configuration were told apart by just that.
Nothing of a record is run.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from golfray.config.errors import ConfigError
from golfray.config.schema import check_value

_SETTINGS = {
    "matrix_lr": "optimizer.matrix_lr",
    "scalar_lr": "optimizer.scalar_lr",
    "tied_embed_lr": "optimizer.tied_embed_lr",
    "beta1": "optimizer.beta1",
    "beta2": "optimizer.beta2",
    "adam_eps": "optimizer.adam_eps",
    "adam_wd": "optimizer.adam_weight_decay",
    "adam_weight_decay": "optimizer.adam_weight_decay",
    "grad_clip_norm": "optimizer.grad_clip",
    "muon_momentum_warmup_start": "muon.momentum_start",
    "muon_momentum": "muon.momentum_end",
    "muon_momentum_warmup_steps": "muon.momentum_warmup_steps",
    "muon_backend_steps": "muon.ns_steps",
    "muon_wd": "muon.weight_decay",
    "muon_weight_decay": "muon.weight_decay",
    "warmdown_iters": "schedule.warmdown_steps",
    "warmdown_frac": "schedule.warmdown_share",
    "min_lr": "schedule.lr_floor",
    "train_batch_tokens": "batch.tokens",
    "train_seq_len": "batch.seq_len",
    "max_wallclock_seconds": "stop.seconds",
    "vocab_size": "model.vocab_size",
    "num_layers": "model.num_layers",
    "model_dim": "model.model_dim",
    "num_heads": "model.num_heads",
    "num_kv_heads": "model.num_kv_heads",
    "mlp_mult": "model.mlp_mult",
    "tie_embeddings": "model.tie_embeddings",
    "logit_softcap": "model.logit_softcap",
    "rope_base": "model.rope_base",
    "qk_gain_init": "model.qk_gain_init",
    "world_size": "workers",
    "embed_bits": "export.bits_embedding",
}
# One bit-width of a record is two of golfray's.
_BOTH_MATRICES = {"matrix_bits": ("export.bits_attention", "export.bits_mlp")}
# A share of the run follows from these and from the number of steps that it made.
_SHARES = {
    "muon.momentum_warmup_steps": "muon.momentum_warmup_share",
    "schedule.warmdown_steps": "schedule.warmdown_share",
}

_BLOCK = re.compile(r"^\s*Hyperparameters:\s*$")
_IN_BLOCK = re.compile(r"^\s+(\w+):(?: (.*))?$")
_WORD = re.compile(r"(\w+):(\S+)")
_STEP = re.compile(r"^(?:step:)?\s*(\d+)/\d+[\s:]")
_LONGEST_LINE = 2_000


@dataclasses.dataclass(frozen=True)
class Logged:
    """What one log says: {name of the script's: value} and how many steps the run made, None where it shows none."""

    values: dict[str, Any]
    steps: int | None


def read_log(text: str) -> Logged:
    """The hyperparameters and the last step of one training log; the first of two values of one name counts."""
    values: dict[str, Any] = {}
    steps = None
    in_block = False
    for line in text.splitlines():
        if len(line) > _LONGEST_LINE:
            continue
        if (step := _STEP.match(line)) is not None:
            steps = int(step[1])
        elif _BLOCK.match(line):
            in_block = True
        elif in_block and (entry := _IN_BLOCK.match(line)) is not None:
            # A block has paths as well, which may be empty: those say nothing, and do not end it.
            words = (entry[2] or "").split()
            if len(words) == 1:
                values.setdefault(entry[1].lower(), _value(words[0]))
        else:
            in_block = False
            words = line.split()
            if words and all(map(_WORD.fullmatch, words)):
                values = _words(words) | values
    return Logged(values, steps)


def script_defaults(source: str) -> dict[str, Any]:
    """{name: default} of what a script takes from its environment; empty where it is packed or no Python."""
    try:
        with warnings.catch_warnings():
            # Of somebody else's code.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.func, ast.Attribute)):
            continue
        owner, (name, default) = node.func, node.args
        if owner.attr != "get" or not isinstance(owner.value, ast.Attribute) or owner.value.attr != "environ":
            continue
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and isinstance(default, ast.Constant):
            found.setdefault(name.value.lower(), _value(str(default.value)))
    return found


def settings_of(values: Mapping[str, Any], steps: float | None) -> dict[str, Any]:
    """{path: value} of the settings that golfray has too; ``steps``: of the run, None where they are not known.

    Raises ``ConfigError`` on a value that its setting cannot have.
    """
    settings: dict[str, Any] = {}
    for name, value in values.items():
        paths = _BOTH_MATRICES.get(name) or ([_SETTINGS[name]] if name in _SETTINGS else [])
        for path in paths:
            settings[path] = _checked(name, path, value)
    if not settings.get("schedule.warmdown_share"):
        # A share of 0 stands for: count iterations.
        settings.pop("schedule.warmdown_share", None)
    else:
        settings.pop("schedule.warmdown_steps", None)
    for count, share in _SHARES.items():
        if count in settings and share not in settings and steps:
            settings[share] = min(1.0, round(settings[count] / steps, 4))
    decay = values.get("ema_decay")
    if isinstance(decay, float) and 0 < decay < 1:
        settings |= {"averaging.method": "ema", "averaging.ema_decay": decay}
    return settings


def _words(words: list[str]) -> dict[str, Any]:
    pairs = {name.lower(): _value(value) for name, value in (word.split(":", 1) for word in words)}
    # The stock script prints the rate of the table under this name, whichever of its two rates that is.
    if pairs.get("tie_embeddings") is True and "embed_lr" in pairs:
        pairs["tied_embed_lr"] = pairs.pop("embed_lr")
    return pairs


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _checked(name: str, path: str, value: Any) -> Any:
    if path == "model.tie_embeddings" and value in (0, 1):
        value = bool(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if path == "schedule.warmdown_share" and value == 0:
        return 0.0
    try:
        return check_value(path, value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}") from error
