"""Everything one trial is told, as plain frozen dataclasses.

These are the settings that ship inside the packed script, so nothing here may import more than the standard library.
The config floor validates what a person wrote and builds them; here they are only carried.
"""

import dataclasses
import json
import typing


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Shape of the network (section 3.1 of the parameter-golf baseline)."""

    vocab_size: int = 1024
    num_layers: int = 9
    model_dim: int = 512
    num_heads: int = 8
    num_kv_heads: int = 4
    mlp_mult: float = 2.0
    tie_embeddings: bool = True
    tied_embed_init_std: float = 0.005
    logit_softcap: float = 30.0
    rope_base: float = 10000.0
    qk_gain_init: float = 1.5
    rms_eps: float = 1.1920929e-7


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """Base learning rates of the four parameter groups, and what Adam needs."""

    matrix_lr: float = 0.04
    scalar_lr: float = 0.04
    tied_embed_lr: float = 0.05
    embed_lr: float = 0.6
    head_lr: float = 0.008
    beta1: float = 0.9
    beta2: float = 0.95
    adam_eps: float = 1e-8
    adam_fused: bool = True
    adam_weight_decay: float = 0.0
    grad_clip: float = 0.0


@dataclasses.dataclass(frozen=True)
class MuonSettings:
    """Momentum schedule and Newton-Schulz; a share, where given, replaces the number of steps."""

    momentum_start: float = 0.85
    momentum_end: float = 0.95
    momentum_warmup_steps: int = 500
    momentum_warmup_share: float | None = None
    ns_steps: int = 5
    ns_dtype: str = "bfloat16"
    weight_decay: float = 0.0


@dataclasses.dataclass(frozen=True)
class ScheduleSettings:
    """Learning-rate multiplier over the run; a share, where given, replaces the number of steps."""

    warmdown_steps: int = 1200
    warmdown_share: float | None = None
    lr_floor: float = 0.0
    warmup_steps: int = 20


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """Tokens of one optimizer step, cut into ``slices`` micro-batches that are the same on any number of ranks."""

    tokens: int = 524_288
    seq_len: int = 1024
    slices: int = 8
    val_tokens: int = 524_288


@dataclasses.dataclass(frozen=True)
class StopSettings:
    """The run ends at whichever of the two comes first; at least one is set."""

    steps: int | None = 20_000
    seconds: float | None = 600.0


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Folder with fineweb_train_*.bin and fineweb_val_*.bin, and the SentencePiece model they were made with."""

    folder: str = ""
    tokenizer: str = ""


@dataclasses.dataclass(frozen=True)
class ExportSettings:
    """How trained weights become bytes. The format "reference" (section 3.6) heeds the first eight, "flat" them all.

    ``search``: how many exports are tried after training, by what stands above core; nothing here acts on it.
    """

    format: str = "reference"
    bits_attention: int = 8
    bits_mlp: int = 8
    bits_embedding: int = 8
    keep_float_max_numel: int = 65_536
    scale_floor: float = 1.0 / 127.0
    clip_quantile: float = 0.9999984
    codec_level: int = 9
    codec: str = "zlib"
    shuffle: bool = False
    bits_control: int = 32
    bits_small: int = 16
    clip_attention: str = "quantile"
    clip_mlp: str = "quantile"
    clip_embedding: str = "quantile"
    clip_k_attention: float = 12.85
    clip_k_mlp: float = 12.85
    clip_k_embedding: float = 20.0
    clip_best_of: int = 5
    group_size: int = 0
    overrides: str = ""
    gptq: bool = False
    gptq_batches: int = 16
    gptq_damping: float = 0.01
    gptq_reserve_seconds: float = 4.0
    search: int | None = None


@dataclasses.dataclass(frozen=True)
class AveragingSettings:
    """Which weights are exported: the last ("none"), or a mean over steps ("ema", "swa"); a share replaces its step."""

    method: str = "none"
    ema_decay: float = 0.997
    ema_window_share: float | None = 0.065
    swa_start_multiplier: float = 0.5
    swa_start_share: float | None = None
    swa_every_steps: int = 50
    swa_every_share: float | None = 0.01


@dataclasses.dataclass(frozen=True)
class EvaluationSettings:
    """What is measured of the exported model besides its score; no stride means no sliding windows."""

    sliding_stride: int | None = None
    sliding_seconds: float | None = 600.0


@dataclasses.dataclass(frozen=True)
class ShipSettings:
    """The form in which the script ships, of which only its packer takes notice: "plain" or "lzma"."""

    source: str = "plain"


@dataclasses.dataclass(frozen=True)
class RuntimeSettings:
    """Where and how the arithmetic runs. ``auto`` is resolved once, printed, and part of the fidelity."""

    device: str = "auto"
    dtype: str = "auto"
    compile: str = "auto"
    seed: int = 1337
    log_points: int = 200


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """One trial, complete: the JSON form of this is what a lane, torchrun and the packed script receive.

    ``clock_trace``: clock.json of a run to tell again, reading by reading; empty for a clock that runs.
    """

    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    muon: MuonSettings = MuonSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    batch: BatchSettings = BatchSettings()
    stop: StopSettings = StopSettings()
    data: DataSettings = DataSettings()
    averaging: AveragingSettings = AveragingSettings()
    export: ExportSettings = ExportSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    ship: ShipSettings = ShipSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    cap_bytes: int = 16_000_000
    bytes_code: int = 0
    clock_trace: str = ""


def beyond_baseline(settings: RunSettings) -> list[str]:
    """Paths of the settings on which only the modules behind golfray.core.train_frontier act."""
    asked = {
        "averaging.method": settings.averaging.method != "none",
        "export.format": settings.export.format != "reference",
        "evaluation.sliding_stride": settings.evaluation.sliding_stride is not None,
    }
    return [path for path, wanted in asked.items() if wanted]


def settings_to_json(settings: RunSettings) -> str:
    """One line of JSON with every field, keys in declaration order."""
    return json.dumps(dataclasses.asdict(settings), separators=(",", ":"))


def settings_from_dict(values: dict) -> RunSettings:
    """Rebuild settings from the dictionary form; unknown names raise ``TypeError``, absent ones take their defaults."""
    fields: dict = {}
    for field in dataclasses.fields(RunSettings):
        if field.name in values:
            value = values[field.name]
            section: typing.Any = type(field.default)
            fields[field.name] = section(**value) if isinstance(value, dict) else value
    known = [field.name for field in dataclasses.fields(RunSettings)]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise TypeError(f"unknown settings {unknown}; known: {known}")
    return RunSettings(**fields)
