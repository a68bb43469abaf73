"""The sections of a configuration: what each setting is, its unit, its bounds, and what null or 0 mean.

One frozen model mirrors each dataclass of ``golfray.core.settings``, field by field. No field has a default: values
come from a preset and from what a person wrote over it, so there is one place to look. Types are strict (text is never
read as a number, a fraction never as an integer; an integer is accepted where a number is meant).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Bits = Annotated[int, Field(ge=2, le=32)]
Clip = Literal["quantile", "max", "std", "best"]

LARGEST_SEED = 2**63 - 1

# A year: whatever is meant to be longer is meant to have no limit, and sums of such numbers stay finite.
LONGEST_S = 31_536_000
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]


class Section(BaseModel):
    """Base of every part of a configuration: frozen, strict, no unknown names, only finite numbers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        use_attribute_docstrings=True,
    )


class Model(Section):
    """Shape of the network."""

    vocab_size: Annotated[int, Field(ge=2, le=65_536)]
    """Number of token ids, at least as many as the tokenizer has pieces; shards store them as 16-bit integers."""
    num_layers: Annotated[int, Field(ge=1, le=1000)]
    """Number of transformer blocks; the first half feeds skip connections to the second."""
    model_dim: Annotated[int, Field(ge=1, le=65_536)]
    """Width of the residual stream, in channels."""
    num_heads: Count
    """Number of query heads; the width of a head is model_dim / num_heads and must be even."""
    num_kv_heads: Count
    """Number of key/value heads, each shared by num_heads / num_kv_heads query heads."""
    mlp_mult: Positive
    """Hidden width of the MLP as a multiple of model_dim; the product must be an integer."""
    tie_embeddings: bool
    """true: one table embeds tokens and makes the logits; false: a separate output head."""
    tied_embed_init_std: Positive
    """Standard deviation of the tied table's initial values; not used when untied."""
    logit_softcap: Positive
    """Logits z become cap * tanh(z / cap) with this cap."""
    rope_base: Annotated[float, Field(gt=1)]
    """Base of the rotary embedding's wavelengths."""
    qk_gain_init: Rate
    """Initial value of the learned gain of each query head."""
    rms_eps: Positive
    """Epsilon inside every RMS norm."""


class Optimizer(Section):
    """Base learning rates of the four parameter groups, and what Adam needs."""

    matrix_lr: Rate
    """Base learning rate of Muon for the matrices of the blocks; 0 freezes them."""
    scalar_lr: Rate
    """Base learning rate of Adam for vectors, gains and skip weights; 0 freezes them."""
    tied_embed_lr: Rate
    """Base learning rate of Adam for the token table when tied; 0 freezes it."""
    embed_lr: Rate
    """Base learning rate of Adam for the token table when untied; 0 freezes it."""
    head_lr: Rate
    """Base learning rate of Adam for the separate output head when untied; 0 freezes it."""
    beta1: Decay
    """Adam's decay of the first moment, per step."""
    beta2: Decay
    """Adam's decay of the second moment, per step."""
    adam_eps: Positive
    """Added to the root of Adam's second moment before the division."""
    adam_fused: bool
    """true: the fused Adam kernel; false: the plain one (the numbers differ slightly)."""
    adam_weight_decay: Rate
    """Decoupled weight decay of the Adam groups, times their learning rate per step; 0 is off."""
    grad_clip: Rate
    """Largest global gradient norm; larger gradients are scaled down to it. 0 is off."""


class Muon(Section):
    """Momentum schedule and Newton-Schulz of the matrix optimizer."""

    momentum_start: Decay
    """Momentum at the first step."""
    momentum_end: Decay
    """Momentum once its warm-up is over."""
    momentum_warmup_steps: Whole
    """Steps from momentum_start to momentum_end; 0 starts at the end value. Not used where the share is set."""
    momentum_warmup_share: Share | None
    """The same as a share of the run; null: count momentum_warmup_steps instead."""
    ns_steps: Annotated[int, Field(ge=1, le=100)]
    """Newton-Schulz iterations for each update."""
    ns_dtype: Literal["bfloat16", "float32"]
    """Arithmetic of Newton-Schulz: bfloat16 as the reference has it, float32 where ranks must agree closely."""
    weight_decay: Rate
    """Decoupled weight decay of the matrices, times their learning rate per step; 0 is off."""


class Schedule(Section):
    """Learning-rate multiplier over the run."""

    warmdown_steps: Whole
    """Last steps, over which the multiplier falls to its floor; 0: it never falls. Not used where the share is set."""
    warmdown_share: Share | None
    """The same as a share of the run; null: count warmdown_steps instead."""
    lr_floor: Annotated[float, Field(ge=0, le=1)]
    """Lowest learning-rate multiplier, as a fraction of the base rate; 0 decays to nothing."""
    warmup_steps: Whole
    """Steps run and undone before the clock starts, so that compilation is not training time; 0 is none."""


class Batch(Section):
    """Tokens of one optimizer step and how they are cut."""

    tokens: Count
    """Tokens of one optimizer step over all workers; must be a multiple of slices * seq_len."""
    seq_len: Count
    """Tokens of one training and validation sequence."""
    slices: Count
    """Micro-batches of one step, the same on any number of workers; must be a multiple of workers."""
    val_tokens: Count
    """Tokens that validation handles at once over all slices; at least slices * seq_len."""


class Stop(Section):
    """When the run ends: at whichever of the two comes first."""

    steps: Count | None
    """Optimizer steps; null: no limit (seconds must then be set)."""
    seconds: Seconds | None
    """Seconds of training by rank 0's clock, compilation and validation apart; null: no limit (steps must be set)."""


class Data(Section):
    """The corpus that is trained on and scored."""

    folder: str
    """Folder with fineweb_train_*.bin and fineweb_val_*.bin; empty: the demo corpus, which only laptop scales take."""
    tokenizer: str
    """SentencePiece model that the shards were made with; empty: the one of the demo corpus."""


class Export(Section):
    """How trained weights become bytes; what can change after training."""

    format: Literal["reference", "flat"]
    """reference: int8 rows in a torch file under zlib, as the challenge's baseline; flat: all the settings below."""
    bits_attention: Bits
    """Bits of an attention matrix's integers: 4 to 8, under flat 2 to 8, or 16 or 32 for floating point."""
    bits_mlp: Bits
    """Bits of an MLP matrix's integers: 4 to 8, under flat 2 to 8, or 16 or 32 for floating point."""
    bits_embedding: Bits
    """Bits of the token table's and an untied head's integers: 4 to 8, under flat 2 to 8, or 16 or 32 for floats."""
    keep_float_max_numel: Whole
    """Tensors of at most this many elements stay floating point (see bits_control, bits_small); 0: none does."""
    scale_floor: Rate
    """Smallest quantization step of a row; 0: no floor. With a floor, bits stop deciding the size of small weights."""
    clip_quantile: Share
    """Quantile of a row's magnitudes at which it is clipped, where the clip is quantile; 1 is the maximum."""
    codec_level: Annotated[int, Field(ge=0, le=22)]
    """Compression level: 0 to 9 for zlib (0 stores) and lzma, 1 to 22 for zstd, 0 to 11 for brotli."""
    codec: Literal["zlib", "lzma", "zstd", "brotli"]
    """What compresses the artifact; zstd and brotli are in golfray[codecs]. The reference format has zlib only."""
    shuffle: bool
    """true: bytes of steps and kept tensors plane by plane: first bytes of all numbers, then second ones, and so on."""
    bits_control: Bits
    """Bits of the control vectors among the small tensors, 32 or 16 for floating point, 2 to 8 for integers."""
    bits_small: Bits
    """Bits of the other small tensors, 32 or 16 for floating point, 2 to 8 for integers."""
    clip_attention: Clip
    """Where rows of attention matrices are clipped: quantile, max, std (k deviations), best (of several quantiles)."""
    clip_mlp: Clip
    """Where rows of MLP matrices are clipped, by the same choices."""
    clip_embedding: Clip
    """Where rows of the token table and an untied head are clipped, by the same choices."""
    clip_k_attention: Positive
    """Standard deviations at which rows of attention matrices are clipped, where their clip is std."""
    clip_k_mlp: Positive
    """Standard deviations at which rows of MLP matrices are clipped, where their clip is std."""
    clip_k_embedding: Positive
    """Standard deviations at which rows of the token table are clipped, where its clip is std."""
    clip_best_of: Annotated[int, Field(ge=2, le=8)]
    """How many quantiles the clip best tries for each tensor; it keeps the one of least squared error."""
    group_size: Whole
    """Columns of a row that share a quantization step; 0: the whole row has one."""
    overrides: str
    """Exceptions by tensor name, as in "*.attn.c_k.* bits=8; blocks.0.* clip=std k=14"; later ones win. Empty: none."""
    gptq: bool
    """true: rounding errors are made up for by later columns (GPTQ), which takes calibration on training tokens."""
    gptq_batches: Count
    """Batches of calibration, each one micro-batch of training tokens."""
    gptq_damping: Positive
    """Share of the mean diagonal that is added to the diagonal of each Hessian."""
    gptq_reserve_seconds: Rate
    """Seconds before its end at which timed training stops, so that calibration lies within them; 0: none."""
    search: Count | None
    """Exports that are tried after training, of which the best that fits is the trial's; null: the one set here."""


class Averaging(Section):
    """Which weights are exported: those of the last step, or a mean over steps; the live ones are scored as well."""

    method: Literal["none", "ema", "swa"]
    """none: the last weights; ema: their exponential moving average from the start on; swa: the mean of snapshots."""
    ema_decay: Decay
    """Weight that the average keeps at each step. Not used where the window is set."""
    ema_window_share: Share | None
    """Time constant of the average as a share of the run, whatever its number of steps; null: ema_decay instead."""
    swa_start_multiplier: Share
    """Snapshots are taken where the learning-rate multiplier is below this. Not used where the share is set."""
    swa_start_share: Share | None
    """Snapshots are taken over this last share of the run; null: from swa_start_multiplier on."""
    swa_every_steps: Count
    """Steps from one snapshot to the next. Not used where the share is set."""
    swa_every_share: Share | None
    """The same as a share of the run; null: count swa_every_steps instead."""


class Evaluation(Section):
    """What is measured of the exported model besides its score, on the same text."""

    sliding_stride: Count | None
    """Tokens that each sliding window scores with all before them as context; at most seq_len. null: no windows."""
    sliding_seconds: Seconds | None
    """Time for sliding windows; beyond it there is no bpb/sliding, and the trial keeps its score. null: no limit."""


class Ship(Section):
    """The form in which the training script ships."""

    source: Literal["plain", "lzma"]
    """plain: source text; lzma: the same, compressed into a line that unpacks and runs it. What ships is counted."""


class Runtime(Section):
    """Where and how the arithmetic runs; what auto became is printed and is part of the fidelity."""

    device: Literal["auto", "cpu", "cuda"]
    """Device kind of the workers; auto: cuda where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"]
    """Type of activations and matrix products; auto: as the device does best."""
    compile: Literal["auto", "on", "off"]
    """torch.compile; auto: on for CUDA, on the CPU only where a compiler is found and it pays."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)]
    """Seed of the initial weights."""
    log_points: Count
    """Largest number of points on the training curve of one run."""
