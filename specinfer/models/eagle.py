"""What does an EAGLE head compute?

One decoder layer that continues the target's hidden states. Slot t holds the state of token t and the embedding of
token t + 1, has position t, and predicts token t + 2. EAGLE-1 and EAGLE-2 (Li et al. 2024) share weights: the state is
the one behind the target's final norm, joined with the embedding by `fc`, and the output goes to the target's own
head. EAGLE-3 (Li et al. 2025): states of three layers joined by `fc`, embedding and state normed apart and joined as
attention input, a head over a draft vocabulary. Always true: the module knows nothing of caches or batches; attention
is handed in, so that training, the engine and any probe run the same mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q [n, num_heads, dim], k [n, num_kv_heads, dim], v likewise), rotated -> attended [n, num_heads, dim]"""


def usual_points(num_layers: int) -> tuple[int, int, int]:
    """The states that an EAGLE-3 head reads unless it says otherwise: those entering a low, a middle, a high layer."""
    return 2, num_layers // 2, num_layers - 3


class EagleKind(Enum):
    """Which of the two families of heads."""

    EAGLE1 = "eagle1"
    EAGLE3 = "eagle3"


@dataclass(frozen=True, kw_only=True)
class EagleShape:
    """Everything that decides what a head computes; a checkpoint is read into one of these, never guessed."""

    kind: EagleKind
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_positions: int = 2048
    target_hidden_size: int | None = None
    """Width of the target's states where it differs from the head's"""
    hidden_points: tuple[int, ...] = ()
    """The target's states that `fc` joins, as DraftResources.hidden_points; EAGLE-1 reads AFTER_FINAL_NORM alone"""
    fc_bias: bool = False
    attention_bias: bool = False
    norm_before_residual: bool = False
    """The residual around attention takes the normed state"""
    norm_before_fc: bool = False
    """A norm over the joined states before `fc`"""
    fc_norm: bool = False
    """A norm of each state of its own before `fc`"""
    norm_output: bool = False
    """What is fed back is the normed output, the one that the head reads"""

    @property
    def state_size(self) -> int:
        return self.target_hidden_size or self.hidden_size


class RMSNorm(nn.Module):
    """Zhang and Sennrich 2019, in the weight's precision."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = functional.rms_norm(x.to(self.weight.dtype), (x.shape[-1],), self.weight, self.eps)
        return normed


class _Attention(nn.Module):
    def __init__(self, shape: EagleShape, input_size: int) -> None:
        super().__init__()
        bias = shape.attention_bias
        self.q_proj = nn.Linear(input_size, shape.num_heads * shape.head_dim, bias=bias)
        self.k_proj = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=bias)
        self.v_proj = nn.Linear(input_size, shape.num_kv_heads * shape.head_dim, bias=bias)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.hidden_size, bias=bias)


class _MLP(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class EagleLayer(nn.Module):
    """The decoder layer; the names of its parameters are those of the public checkpoints."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.shape = shape
        is_third = shape.kind is EagleKind.EAGLE3
        self.self_attn = _Attention(shape, (2 if is_third else 1) * shape.hidden_size)
        self.mlp = _MLP(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        if is_third:
            self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
            self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def attention_input(self, embeds: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """What q, k and v are made of, and the residual: [n, hidden_size or twice that], [n, hidden_size]."""
        if self.shape.kind is EagleKind.EAGLE1:
            return state, state
        normed = self.hidden_norm(state)
        joined = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
        return joined, normed if self.shape.norm_before_residual else state

    def keys_values(self, joined: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values, [..., num_kv_heads, head_dim]."""
        split = (*joined.shape[:-1], self.shape.num_kv_heads, self.shape.head_dim)
        key, value = self.self_attn.k_proj(joined).view(split), self.self_attn.v_proj(joined).view(split)
        return rotate(key, cos, sin), value

    def queries(self, joined: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated queries, [..., num_heads, head_dim]."""
        split = (*joined.shape[:-1], self.shape.num_heads, self.shape.head_dim)
        return rotate(self.self_attn.q_proj(joined).view(split), cos, sin)

    def finish(self, residual: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer behind attention: attended [..., num_heads, head_dim] -> [..., hidden_size]."""
        state = residual + self.self_attn.o_proj(attended.flatten(-2))
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out


class EagleHead(nn.Module):
    """An EAGLE head's own weights: `fc`, the layer, and for EAGLE-3 its norm, head and vocabulary map."""

    draft_to_target: Tensor
    """int64 [draft_vocab_size]: the target's id of each draft id"""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        self.shape = shape
        is_third = shape.kind is EagleKind.EAGLE3
        num_states = len(shape.hidden_points) if is_third else 1
        inputs = num_states * shape.state_size + (0 if is_third else shape.hidden_size)
        self.fc = nn.Linear(inputs, shape.hidden_size, bias=shape.fc_bias)
        self.midlayer = EagleLayer(shape)
        if is_third:
            self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
            self.lm_head = nn.Linear(shape.hidden_size, shape.draft_vocab_size, bias=False)
        if shape.norm_before_fc:
            self.input_norm = RMSNorm(inputs, shape.rms_norm_eps)
        if shape.fc_norm:
            norms = (RMSNorm(shape.state_size, shape.rms_norm_eps) for _ in range(num_states))
            self.fc_norm = nn.ModuleList(norms)
        self.embed_tokens: nn.Embedding | None = None
        self.register_buffer("draft_to_target", torch.arange(shape.draft_vocab_size), persistent=False)

    def project(self, states: Tensor) -> Tensor:
        """The target's states of a token, side by side, as the head's own state: [n, hidden_size] (EAGLE-3)."""
        if self.shape.kind is EagleKind.EAGLE1:
            return states
        if self.shape.fc_norm:
            parts = torch.split(states, self.shape.state_size, dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        if self.shape.norm_before_fc:
            states = self.input_norm(states)
        projected: Tensor = self.fc(states)
        return projected.to(states.dtype)

    def slot_input(self, embeds: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """What a slot's attention reads, and the residual, from the next token's embedding and the slot's state."""
        if self.shape.kind is EagleKind.EAGLE1:
            state = self.fc(torch.cat([embeds, state], dim=-1))
        return self.midlayer.attention_input(embeds, state)

    def forward(self, embeds: Tensor, state: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The head's output state a slot, [n, hidden_size]; it is also the state of the next, drafted, slot."""
        cos, sin = rotation(positions, self.shape.head_dim, self.shape.rope_theta, state.dtype)
        joined, residual = self.slot_input(embeds, state)
        key, value = self.midlayer.keys_values(joined, cos, sin)
        attended = attend(self.midlayer.queries(joined, cos, sin), key, value)
        return self.midlayer.finish(residual, attended)

    def draft_logits(self, out: Tensor) -> Tensor:
        """EAGLE-3: logits over the draft vocabulary, [n, draft_vocab_size]."""
        logits: Tensor = self.lm_head(self.norm(out))
        return logits

    def fed_back(self, out: Tensor) -> Tensor:
        """What the next slot takes as its state."""
        return self.norm(out) if self.shape.norm_output else out


def rotation(positions: Tensor, dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of rotary embeddings (Su et al. 2021), [..., 1, dim]."""
    inverse = theta ** -(torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
    angles = positions[..., None].double() * inverse
    angles = torch.cat([angles, angles], dim=-1)[..., None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply `rotation` to heads [..., num_heads, dim], halves paired as in Llama."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
