"""What an export begins with: a checkpoint, and the settings under which it is exported and scored."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from golfray.config.resolve import HasGpu, Layer, Resolved, resolve
from golfray.core.settings import RunSettings
from golfray.core.trial import CHECKPOINT_NAME
from golfray.ship.foreign_checkpoint import Checkpoint, CheckpointError, infer_model
from golfray.ship.score_file import read_settings

SETTINGS_NAME = "settings.json"

# What can change after training, and what says where and on what the result is computed and how much may ship.
_AFTER_TRAINING = ("export.", "evaluation.", "ship.", "data.", "runtime.", "cap_bytes", "batch.val_tokens")
# What the weights of a model that was trained elsewhere do not tell.
_OF_FOREIGN = ("model.", "batch.seq_len")


def find_checkpoint(path: Path) -> tuple[Path, Path | None]:
    """The file that ``path`` means, and the settings.json it was trained with, None where it is not a trial's of ours.

    ``path`` is a trial's folder (that of a study: the last attempt that has a checkpoint), the checkpoint.pt in it, or
    a file of somebody else's. Raises :class:`CheckpointError` where a folder has no checkpoint.
    """
    if path.is_dir():
        attempts = sorted(path.glob("attempt-*"), key=lambda attempt: (len(attempt.name), attempt.name))
        folders = [folder for folder in (path, *reversed(attempts)) if (folder / CHECKPOINT_NAME).exists()]
        if not folders:
            raise CheckpointError(
                f"{path}: has no {CHECKPOINT_NAME}, nor has an attempt in it; a trial that was stopped or diverged has "
                "none to export"
            )
        path = folders[0] / CHECKPOINT_NAME
    settings = path.with_name(SETTINGS_NAME)
    return path, settings if path.name == CHECKPOINT_NAME and settings.exists() else None


def resolve_trial(settings_path: Path, sets: list[str]) -> Resolved:
    """The settings of a trial with ``--set`` overrides on top.

    Raises ``ConfigError`` for one that training has decided, and what :func:`read_settings` raises.
    """
    values = dataclasses.asdict(read_settings(settings_path))
    for name in ("bytes_code", "clock_trace"):
        del values[name]
    chosen = Layer.from_sets(sets)
    _refuse_decided(chosen, _AFTER_TRAINING)
    # Every setting is in the trial's own; the preset beneath only says that these are all there are.
    below = Layer(str(settings_path), {**values, "workers": 1})
    return resolve("parameter-golf", "full", [below, chosen], has_gpu=False)


def resolve_foreign(checkpoint: Checkpoint, preset: str, scale: str, sets: list[str], has_gpu: HasGpu) -> Resolved:
    """A preset with the model that the checkpoint's names and shapes tell, and ``--set`` overrides on top.

    Raises ``ConfigError`` for one that training has decided, and what :func:`infer_model` raises.
    """
    chosen = Layer.from_sets(sets)
    _refuse_decided(chosen, (*_AFTER_TRAINING, *_OF_FOREIGN))
    told = Layer(str(checkpoint.path), {"model": infer_model(checkpoint)})
    return resolve(preset, scale, [told, chosen], has_gpu=has_gpu)


def trained_steps(settings_path: Path) -> int | None:
    """Optimizer steps of the trial with this settings.json, from its result.json; None where that does not say."""
    try:
        metrics = json.loads(settings_path.with_name("result.json").read_text(encoding="utf-8"))["metrics"]
        return int(metrics["train/steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def describe_model(settings: RunSettings) -> str:
    """The model in a few words."""
    model = settings.model
    heads = f"{model.num_heads} heads of {model.model_dim // model.num_heads}, {model.num_kv_heads} key/value"
    table = "tied" if model.tie_embeddings else "untied"
    return (
        f"{model.num_layers} layers x {model.model_dim}, {heads}, MLP {round(model.mlp_mult * model.model_dim)}, "
        f"{model.vocab_size} tokens {table}"
    )


def _refuse_decided(chosen: Layer, allowed: tuple[str, ...]) -> None:
    for path in chosen.flat():
        if not path.startswith(allowed):
            names = ", ".join(name.rstrip(".") for name in allowed)
            raise chosen.error(path, f"was decided when the checkpoint was trained; an export may set {names}")
