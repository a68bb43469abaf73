"""Cases on real shards with their real tokenizer: train, validate, export, reload, validate again."""

import pathlib
from typing import Any

from golfray.core.artifact import pack_artifact, unpack_artifact
from golfray.core.byte_table import load_byte_table
from golfray.core.quantize import dequantize_state, quantize_state
from golfray.core.score import score_model
from golfray.core.settings import ExportSettings
from golfray.core.shards import list_shards, load_validation_tokens
from golfray.selftest.errors import SelftestError
from golfray.selftest.sections import Case, Context, Section, describe_config
from golfray.selftest.training import ALONE, formula_model, train_steps, training_settings


def prepare_real_text(case: Case, data: pathlib.Path | None) -> None:
    """Raise ``SelftestError`` where no data folder is given or it lacks the case's shards or tokenizer."""
    if data is None:
        raise SelftestError(
            f"the section real_text needs {case['dataset']} and {case['tokenizer']}; give the folder that has them "
            "with --data DIR"
        )
    for split in ("train", "val"):
        if not list((data / case["dataset"]).glob(f"fineweb_{split}_*.bin")):
            raise SelftestError(f"{data / case['dataset']}: no fineweb_{split}_*.bin; --data must have these shards")
    if not (data / case["tokenizer"]).is_file():
        raise SelftestError(f"{data / case['tokenizer']}: no such tokenizer; --data must have it")


def compute_real_text(case: Case, context: Context) -> dict[str, Any]:
    """Losses of the training steps, the score of the trained weights, and that of the reloaded artifact."""
    assert context.data is not None
    folder = context.data / case["dataset"]
    settings = training_settings(case, len(case["train_losses"]))
    model = formula_model(case["config"], case["weight_scale"])
    losses = list(train_steps(model, settings, list_shards(folder, "train")))
    tokens = load_validation_tokens(list_shards(folder, "val"), case["seq_len"])
    table = load_byte_table(str(context.data / case["tokenizer"]), settings.model.vocab_size)
    before = score_model(model, tokens, table, settings.batch, ALONE)
    export = ExportSettings()
    container, payload = quantize_state(model.state_dict(), export)
    content = pack_artifact(container, export.codec_level)
    model.load_state_dict(dequantize_state(unpack_artifact(content)))
    after = score_model(model, tokens, table, settings.batch, ALONE)
    return {
        "train_losses": losses,
        "validation": {
            "tokens": before.tokens,
            "bytes": before.bytes,
            "loss": before.loss,
            "bpb": before.bits_per_byte,
        },
        "after_int8_zlib": {
            "loss": after.loss,
            "bpb": after.bits_per_byte,
            "payload_bytes": sum(payload.values()),
            "zlib9_bytes": len(content),
        },
    }


REAL_TEXT = Section(
    frozenset({"dataset", "tokenizer", "config", "batch", "seq_len", "weight_scale", "lrs", "muon_momentum", "adam"}),
    lambda case: f"{case['dataset']}: {describe_config(case)}, {len(case['train_losses'])} steps",
    compute_real_text,
    prepare=prepare_real_text,
)
