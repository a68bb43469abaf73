"""What a run scores before any luck: bits per byte from parameters, tokens, rates and schedules.

    bpb = floor + size (N / N0)^-a + tokens (D / D0)^-b + context (T / T0)^-c + mis-sets        before the export
    roundtrip = bpb + gap of the matrices' bits + gap of the table's bits

N are parameters, D training tokens, T tokens of a sequence; a mis-set is k (x - best)^2 in the knob's own scale. The
constants are least squares over the numbers that :mod:`golfray.sweep.sim.published` has with their sources; where a
number is not identified by them its line says so. ``python benchmarks/simulator_fit.py`` prints every residual, and
docs/simulator.md where the law is known to be wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from golfray.core.settings import ModelSettings, RunSettings

# Tokens of the baseline's published run, 13,780 steps of 524,288 (parameter_golf.md, R01).
BASELINE_TOKENS = 13_780 * 524_288


@dataclasses.dataclass(frozen=True)
class Valley:
    """What a knob costs, in bits per byte: ``curvature`` (x - best)^2, x as the law's field of that name says."""

    best: float
    curvature: float

    def at(self, x: float, shift: float = 0.0) -> float:
        """The cost at ``x`` where the best value is moved by ``shift``."""
        return self.curvature * (x - self.best - shift) ** 2


@dataclasses.dataclass(frozen=True)
class Law:
    """Constants of one scale; those of the two are :data:`FULL` and :data:`LAPTOP`, each with its sources.

    ``bytes_per_token`` and ``uniform_bpb`` are of the scale's own text and tokenizer. Rates are in ln(rate), momentum
    in ln(1 - m), its warm-up in ln(share), warmdown and decay as they are. ``gap_at_6`` and ``gap_a_bit``: what 6-bit
    matrices lose and by how much a bit less multiplies that; ``table_gap``: what the token table loses at 8 bits and
    the baseline's rate, with which it grows. ``noise``: standard deviation over seeds at ``tokens_at``. ``early``: the
    one by which a configuration looks other early than it is (:mod:`golfray.sweep.sim.curve`). ``tail``: the largest
    weight of a row of n, in its standard deviations, over (2 ln n)^1/2.
    """

    name: str
    bytes_per_token: float
    uniform_bpb: float
    floor: float
    size: float
    parameters_at: float
    tokens: float
    tokens_at: float
    tokens_exponent: float
    context: float
    context_at: float
    matrix_lr: Valley
    scalar_lr: Valley
    embed_lr: Valley
    momentum: Valley
    momentum_warmup: Valley
    warmdown: Valley
    weight_decay: Valley
    batch: Valley
    batch_tokens_at: float
    gap_at_6: float
    gap_a_bit: float
    table_gap: float
    table_rate_at: float
    noise: float
    early: float
    tail: float
    size_exponent: float = 0.34
    context_exponent: float = 0.2
    rate_exponent: float = 0.29
    batch_exponent: float = 0.83
    noise_exponent: float = 0.25


FULL = Law(
    name="full",
    # parameter_golf.md 3.6: bytes a token of sp1024; uniform is log2(1024) over that.
    bytes_per_token=2.4359,
    uniform_bpb=10 / 2.4359,
    # Fit over R01, R03-R07, R11, R12, R14, PR 86 and the 4-hour run (residuals up to .006); the exponent of size is not
    # identified by records of 17 to 27 million parameters: .34, as Hoffmann et al. 2022 (arXiv:2203.15556) found.
    floor=0.6805,
    size=0.254,
    parameters_at=17_059_912,
    tokens=0.0595,
    tokens_at=BASELINE_TOKENS,
    tokens_exponent=0.5,
    context=0.207,
    context_at=1024,
    # The curve of R05 (section 2), which scales all three rates at once, has a curvature of .0105 around half of the
    # baseline's rates; how it splits among them is assumed. Ratios of the best rates: .02 / .02 / .03 (R05, section 2).
    matrix_lr=Valley(math.log(0.021), 0.0060),
    scalar_lr=Valley(math.log(0.021), 0.0010),
    embed_lr=Valley(math.log(0.030), 0.0035),
    # R34: .97 over .99 is worth .0005. The ternary study of R22 has more (.007 and .024), for another optimizer noise.
    momentum=Valley(math.log(1 - 0.975), 0.0009),
    # Never isolated (section 2: "unexplored"); the best share is the frontier's, the curvature assumed.
    momentum_warmup=Valley(math.log(0.3), 0.0003),
    # Fit as above, with R20 (3000 to 3500 iterations: -.0002) and R44 (.75 to .85) near the best.
    warmdown=Valley(0.75, 0.0205),
    # Section 2: records rose from 0 to .095, always with bits or width; as a gain by itself assumed.
    weight_decay=Valley(0.06, 0.5),
    # PR 375 (786k against 524k -.004), R22 study (262k +.056, 1M +.0075 against 524k), PR 393 (131k on one GPU -.024):
    # four numbers, four constants.
    batch=Valley(math.log(690_000), 0.0655),
    batch_tokens_at=3.4e9,
    # Section 6: .0067 at 6 bits after round-to-nearest (R18, R19); 5 bits +.014 (PR 1001) and 4 about +.06 (PR 375).
    gap_at_6=0.0067,
    gap_a_bit=3.15,
    # Section 6: .0072 whole, .0010 with a float table (R03), .0047 at .03 (R05).
    table_gap=0.0062,
    table_rate_at=0.05,
    # Section 6, pooled over 71 degrees of freedom; it grows with fewer tokens as from here to the laptop's.
    noise=0.00077,
    # Rank correlations of anchors.md, section 3, on random points of search_spaces/muon.yaml.
    early=0.0085,
    # Section 3.6: .928 bytes a weight at 8 bits.
    tail=0.90,
)
"""Parameter-golf on eight H100: FineWeb with sp1024."""

LAPTOP = Law(
    name="laptop",
    # The King James corpus of golfray.data: its reference points and its tokenizer's counts (README, "uniform 3.2849").
    bytes_per_token=10 / 3.2849,
    uniform_bpb=3.2849,
    # docs/log.md, "The laptop ranges": the preset on 4 seeds and 20 random points of 250 steps; "The shape of the
    # laptop scale": 190 and fewer steps, layers, widths and batches.
    floor=1.017,
    size=0.105,
    parameters_at=348_396,
    tokens=0.53,
    tokens_at=250 * 2048,
    tokens_exponent=0.44,
    # The same table: sequences of 256 are within noise of 128.
    context=0.0,
    context_at=128,
    # Least squares over docs/laptop_ranges/results.csv, root mean square .0205.
    matrix_lr=Valley(math.log(0.04), 0.0221),
    scalar_lr=Valley(math.log(0.008), 0.0031),
    embed_lr=Valley(math.log(0.035), 0.0168),
    momentum=Valley(math.log(1 - 0.8), 0.0188),
    momentum_warmup=Valley(math.log(0.3), 0.0075),
    warmdown=Valley(1.0, 0.0589),
    # Rank correlation of decay with the score there: .02.
    weight_decay=Valley(0.1, 0.0),
    # "The shape of the laptop scale": 4,096 against 2,048 tokens a step.
    batch=Valley(math.log(1240), 0.0655),
    batch_tokens_at=350_000,
    # docs/log.md, "The search over exports": 4 bits lose .0194, 8 bits .0001; the table's part is not apart there.
    gap_at_6=0.0014,
    gap_a_bit=3.7,
    table_gap=0.0001,
    table_rate_at=0.05,
    # "The laptop ranges": 4 seeds in steps mode.
    noise=0.0084,
    early=0.059,
    # docs/log.md, "What a study takes": 332,143 bytes at 6/6/8 bits and 387,922 at 8, 46,682 of them code.
    tail=1.1,
)
"""The laptop scale on two CPU cores: the King James text."""

LAWS = {law.name: law for law in (FULL, LAPTOP)}


# What a score, a size or a time depends on here. Other settings change nothing.
_KNOWN = {
    "model": ("vocab_size", "num_layers", "model_dim", "num_heads", "num_kv_heads", "mlp_mult", "tie_embeddings"),
    "optimizer": ("matrix_lr", "scalar_lr", "tied_embed_lr", "embed_lr"),
    "muon": ("momentum_end", "momentum_warmup_steps", "momentum_warmup_share", "weight_decay"),
    "schedule": ("warmdown_steps", "warmdown_share", "lr_floor"),
    "batch": ("tokens", "seq_len"),
    "stop": ("steps", "seconds"),
    "export": (
        *("format", "bits_attention", "bits_mlp", "bits_embedding", "scale_floor", "codec", "bits_control", "gptq"),
        *("gptq_reserve_seconds", "clip_attention", "clip_mlp", "clip_embedding"),
        *("clip_k_attention", "clip_k_mlp", "clip_k_embedding"),
    ),
    "evaluation": ("sliding_stride", "sliding_seconds"),
    "runtime": ("seed", "log_points"),
}


def unknown_paths(paths: Iterable[str]) -> list[str]:
    """Those of the dotted paths of which the law knows nothing."""
    known = {f"{section}.{name}" for section, names in _KNOWN.items() for name in names}
    return [path for path in paths if path not in known]


@dataclasses.dataclass(frozen=True)
class Expected:
    """Bits per byte without luck: before the export, what the export costs, and the same text by sliding windows."""

    prequant: float
    gap: float
    sliding: float | None

    @property
    def roundtrip(self) -> float:
        """What the exported model scores."""
        return self.prequant + self.gap


def parameter_count(model: ModelSettings) -> int:
    """Parameters of the baseline's network, as section 3.1 of parameter_golf.md counts them."""
    dim = model.model_dim
    layer = attention_weights(model) + mlp_weights(model) + 4 * dim + model.num_heads
    skips = model.num_layers // 2 * dim
    table = model.vocab_size * dim * (1 if model.tie_embeddings else 2)
    return table + model.num_layers * layer + skips


def attention_weights(model: ModelSettings) -> int:
    """Weights of one block's q, k, v and output matrices."""
    dim, kv = model.model_dim, model.model_dim * model.num_kv_heads // model.num_heads
    return 2 * dim * dim + 2 * dim * kv


def mlp_weights(model: ModelSettings) -> int:
    """Weights of one block's two MLP matrices."""
    return 2 * model.model_dim * int(model.mlp_mult * model.model_dim)


def expected_bpb(law: Law, settings: RunSettings, steps: int) -> Expected:
    """What a run of ``steps`` steps scores, as far as the law knows its settings; it never diverges here."""
    tokens = max(steps, 1) * settings.batch.tokens
    value = (
        law.floor
        + law.size * (parameter_count(settings.model) / law.parameters_at) ** -law.size_exponent
        + law.tokens * (tokens / law.tokens_at) ** -law.tokens_exponent
        + law.context * (settings.batch.seq_len / law.context_at) ** -law.context_exponent
        + _mis_sets(law, settings, steps, tokens)
    )
    if settings.averaging.method == "none":
        value += undecayed(settings.schedule.lr_floor)
    sliding = settings.evaluation.sliding_stride
    gain = 0.0 if sliding is None else sliding_gain(settings.batch.seq_len, sliding)
    gap = export_gap(law, settings)
    return Expected(value, gap, None if sliding is None else value + gap - gain)


def best_matrix_lr(law: Law, tokens: float) -> float:
    """Muon's best rate for a run of so many tokens. Shorter runs want higher ones.

    PR 141: five times as high on an A40 for two minutes, about 1/264 of the tokens, as on eight H100 for ten; PR 244:
    .06 over .04 on one GPU. Longer runs than the law's own are not known to want lower ones.
    """
    return math.exp(law.matrix_lr.best + _shift(law, tokens))


def warmdown_share(settings: RunSettings, steps: int) -> float:
    """Share of the run in which the rate falls; above 1 where it never was whole."""
    schedule = settings.schedule
    return schedule.warmdown_steps / max(steps, 1) if schedule.warmdown_share is None else schedule.warmdown_share


def export_gap(law: Law, settings: RunSettings) -> float:
    """Bits per byte that the round trip loses. GPTQ halves the matrices' part (section 6: .0084 to .0041, R21, R23)."""
    export, model = settings.export, settings.model
    attention, mlp = attention_weights(model), mlp_weights(model)
    matrices = sum(
        weights * law.gap_at_6 * law.gap_a_bit ** (6 - bits)
        for weights, bits in ((attention, export.bits_attention), (mlp, export.bits_mlp))
    ) / (attention + mlp)
    rate = settings.optimizer.tied_embed_lr if model.tie_embeddings else settings.optimizer.embed_lr
    table = law.table_gap * (rate / law.table_rate_at) * law.gap_a_bit ** (8 - export.bits_embedding)
    return matrices * (0.5 if export.gptq else 1.0) + table


def undecayed(multiplier: float) -> float:
    """Bits per byte that live weights lack while the rate is at so much of its base.

    Section 6: with a floor of .1 under the rate the end is .0104 worse than the average of its weights (R42 to R45).
    How it goes with the multiplier is assumed, and that it does not depend on the rate itself.
    """
    return 0.0104 * (multiplier / 0.1) ** 0.25


def sliding_gain(seq_len: int, stride: int) -> float:
    """Bits per byte that sliding windows save. Section 7: .0327 at 1,024 and .023 at 2,048, both with stride 64."""
    return 0.0327 * (1024 / seq_len) ** 0.51 * max(1 - stride / seq_len, 0.0) / (1 - 64 / 1024)


def _mis_sets(law: Law, settings: RunSettings, steps: int, tokens: float) -> float:
    rates, muon, shift = settings.optimizer, settings.muon, _shift(law, tokens)
    table_rate = rates.tied_embed_lr if settings.model.tie_embeddings else rates.embed_lr
    warmup = muon.momentum_warmup_share
    if warmup is None:
        warmup = muon.momentum_warmup_steps / max(steps, 1)
    grown = min(1.0, tokens / law.batch_tokens_at) ** law.batch_exponent
    return (
        law.matrix_lr.at(_ln(rates.matrix_lr), shift)
        + law.scalar_lr.at(_ln(rates.scalar_lr), shift)
        + law.embed_lr.at(_ln(table_rate), shift)
        + law.momentum.at(_ln(1 - muon.momentum_end))
        # Less than a fiftieth of a run is none.
        + law.momentum_warmup.at(_ln(max(warmup, 0.02)))
        + law.warmdown.at(min(warmdown_share(settings, steps), 2.0))
        + law.weight_decay.at(muon.weight_decay)
        + law.batch.at(_ln(settings.batch.tokens), _ln(grown))
    )


def _shift(law: Law, tokens: float) -> float:
    return law.rate_exponent * max(_ln(law.tokens_at / max(tokens, 1.0)), 0.0)


def _ln(value: float) -> float:
    """ln, with 0 as something very small: a rate of 0 is as bad as a law can say."""
    return math.log(max(value, 1e-6))
