"""The baseline network: a GPT with U-Net skips, residual mixing and grouped-query attention (section 3.1)."""

import torch

from golfray.core.settings import ModelSettings

CONTROL_NAMES = ("attn_scale", "mlp_scale", "resid_mix", "q_gain", "skip_weight")


def is_control(name: str) -> bool:
    """Whether a parameter is one of the small vectors that steer the residual stream (matched by substring)."""
    return any(part in name for part in CONTROL_NAMES)


class CastedLinear(torch.nn.Linear):
    """A linear layer without bias whose weight is cast to the input's dtype in use."""

    def __init__(self, inputs: int, outputs: int, zero_init: bool = False) -> None:
        super().__init__(inputs, outputs, bias=False)
        if zero_init:
            torch.nn.init.zeros_(self.weight)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(input, self.weight.to(input.dtype))


def rotary_tables(length: int, head_dim: int, base: float, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the angles t * base^(-2i / head_dim), made in float32, of shape (length, 1, head_dim / 2).

    They are returned in the dtype and on the device of ``like``.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=like.device) / head_dim
    times = torch.arange(length, dtype=torch.float32, device=like.device)
    angles = torch.outer(times, 1.0 / (base**exponents))[:, None, :]
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Half-split rotation (x1 cos + x2 sin, -x1 sin + x2 cos) of x, of shape (batch, time, heads, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1)


class Attention(torch.nn.Module):
    """Causal grouped-query attention with normalised q and k and a learned gain for each query head."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        dim, heads, kv_heads = settings.model_dim, settings.num_heads, settings.num_kv_heads
        self.head_dim, self.eps = dim // heads, settings.rms_eps
        self.q_gain = torch.nn.Parameter(torch.full((heads,), settings.qk_gain_init, dtype=torch.float32))
        self.c_q = CastedLinear(dim, dim)
        self.c_k = CastedLinear(dim, kv_heads * self.head_dim)
        self.c_v = CastedLinear(dim, kv_heads * self.head_dim)
        self.proj = CastedLinear(dim, dim, zero_init=True)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        q = self.c_q(x).view(batch, time, -1, self.head_dim)
        k = self.c_k(x).view(batch, time, -1, self.head_dim)
        v = self.c_v(x).view(batch, time, -1, self.head_dim)
        q = rotate(torch.nn.functional.rms_norm(q, (self.head_dim,), eps=self.eps), cos, sin)
        k = rotate(torch.nn.functional.rms_norm(k, (self.head_dim,), eps=self.eps), cos, sin)
        q = q * self.q_gain.to(q.dtype)[:, None]
        out = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=q.shape[2] != k.shape[2]
        )
        return self.proj(out.transpose(1, 2).reshape(batch, time, dim))


class MLP(torch.nn.Module):
    """relu(x W1)^2 W2."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        hidden = round(settings.mlp_mult * settings.model_dim)
        self.fc = CastedLinear(settings.model_dim, hidden)
        self.proj = CastedLinear(hidden, settings.model_dim, zero_init=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(torch.relu(self.fc(x)).square())


class Block(torch.nn.Module):
    """x <- m0 x + m1 x0; x <- x + a Attn(rms(x)); x <- x + b MLP(rms(x)), with per-channel m, a, b."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        dim, self.eps = settings.model_dim, settings.rms_eps
        self.attn_scale = torch.nn.Parameter(torch.ones(dim))
        self.mlp_scale = torch.nn.Parameter(torch.ones(dim))
        self.resid_mix = torch.nn.Parameter(torch.stack((torch.ones(dim), torch.zeros(dim))))
        self.attn = Attention(settings)
        self.mlp = MLP(settings)

    def forward(self, x: torch.Tensor, x0: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        mix = self.resid_mix.to(x.dtype)
        x = mix[0] * x + mix[1] * x0
        normed = torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=self.eps)
        x = x + self.attn_scale.to(x.dtype) * self.attn(normed, cos, sin)
        normed = torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=self.eps)
        return x + self.mlp_scale.to(x.dtype) * self.mlp(normed)


class GPT(torch.nn.Module):
    """The whole network; parameter names and their order are the reference's, so artifacts load both ways."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.encoder_layers = settings.num_layers // 2
        self.skip_weights = torch.nn.Parameter(torch.ones(self.encoder_layers, settings.model_dim))
        self.tok_emb = torch.nn.Embedding(settings.vocab_size, settings.model_dim)
        if settings.tie_embeddings:
            torch.nn.init.normal_(self.tok_emb.weight, mean=0.0, std=settings.tied_embed_init_std)
        self.blocks = torch.nn.ModuleList([Block(settings) for _ in range(settings.num_layers)])
        if not settings.tie_embeddings:
            self.lm_head = CastedLinear(settings.model_dim, settings.vocab_size, zero_init=True)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Capped logits, float32 of shape (batch * time, vocab), for int64 tokens of shape (batch, time)."""
        width, eps = (self.settings.model_dim,), self.settings.rms_eps
        x = x0 = torch.nn.functional.rms_norm(self.tok_emb(tokens), width, eps=eps)
        head_dim = self.settings.model_dim // self.settings.num_heads
        cos, sin = rotary_tables(tokens.shape[1], head_dim, self.settings.rope_base, x)
        skips: list[torch.Tensor] = []
        for index, block in enumerate(self.blocks):
            if index >= self.encoder_layers and skips:
                x = x + self.skip_weights[index - self.encoder_layers].to(x.dtype) * skips.pop()
            x = block(x, x0, cos, sin)
            if index < self.encoder_layers:
                skips.append(x)
        x = torch.nn.functional.rms_norm(x, width, eps=eps).flatten(0, 1)
        z = torch.nn.functional.linear(x, self.tok_emb.weight) if self.settings.tie_embeddings else self.lm_head(x)
        cap = self.settings.logit_softcap
        return (cap * torch.tanh(z / cap)).float()

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats per token, a float32 scalar."""
        return torch.nn.functional.cross_entropy(self.logits(tokens), targets.flatten())


def build_model(settings: ModelSettings, dtype: torch.dtype, device: torch.device) -> GPT:
    """A fresh model stored by the baseline's precision rules, from torch's current random state.

    With bfloat16 everything is cast to bfloat16, then linear weights go back to float32 (keeping the rounding), then
    every parameter of fewer than two dimensions or with a control name; the token table stays bfloat16. With float32
    nothing is cast.
    """
    model = GPT(settings)
    if dtype == torch.bfloat16:
        model.bfloat16()
        for module in model.modules():
            if isinstance(module, CastedLinear):
                module.float()
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2 or is_control(name):
                parameter.data = parameter.data.float()
    return model.to(device)
