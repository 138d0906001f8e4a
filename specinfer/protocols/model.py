"""What must a model and its tokenizer do to be served?

Always true: a model reads and writes K/V only through the slots that a batch names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from specinfer.types import ChatMessage

AFTER_FINAL_NORM = -1
"""The hidden state that the head reads; other points are layer numbers: what enters that layer."""


@dataclass(frozen=True, slots=True)
class KVLayerSpec:
    """The shape of one attention layer's cache, a token."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


@runtime_checkable
class CausalModel(Protocol):
    """A target (or drafter) that reads and writes the paged cache.

    Always true: `forward` first writes the K/V of every token of the batch into its slot, then each token attends to
    the positions 0..its own of its request only.
    """

    name: str
    vocab_size: int
    """Width of the logits; at least the tokenizer's length."""
    max_model_len: int
    dtype: torch.dtype
    device: torch.device

    @property
    def kv_layers(self) -> Sequence[KVLayerSpec]:
        """The cache shape of each attention layer, in the order of `kv_cache` below."""
        ...

    def forward(self, batch: Any, kv_cache: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Logits [num_logits_rows, vocab_size], float32 or float64, of the rows in `batch.logits_rows`.

        batch: specinfer.kernels.metadata.ForwardBatch. kv_cache: a (K, V) pair a layer,
        K [num_slots, num_kv_heads, key_dim], V [num_slots, num_kv_heads, value_dim]. A model without an inside to
        show (no HiddenStateModel) leaves `batch.hidden` empty.
        """
        ...


@runtime_checkable
class HiddenStateModel(CausalModel, Protocol):
    """A model whose inside drafters can use.

    Its `forward` puts the hidden states of `batch.hidden_points` into `batch.hidden`, [num_tokens, hidden_size] each.
    """

    num_layers: int

    @property
    def hidden_size(self) -> int:
        """Width of the states."""
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """Input embeddings [..., hidden_size]."""
        ...

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The norm before the head: [..., hidden_size]."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab_size] of normed hidden states."""
        ...

    def prefix(self, num_layers: int) -> CausalModel:
        """The first layers, the final norm and the head as a model of its own; weights are shared."""
        ...


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer; transformers' and the ByteTokenizer of specinfer.testing have it."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` as a prompt, special tokens added as the model was trained."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Token ids of `text` alone, without special tokens."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `token_ids`; bytes that are no complete character become U+FFFD."""
        ...

    def render_chat(self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a conversation in the model's chat template; RequestError when it has none."""
        ...

    def token_strings(self) -> list[str]:
        """The string of each id, as the vocabulary holds it: equal strings mean the same token in two vocabularies."""
        ...

    def token_bytes(self) -> list[bytes]:
        """What each id adds to a text, b"" for special ids."""
        ...

    def __len__(self) -> int:
        """Count of token ids with a meaning; the model's logits may be wider (padding rows)."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with what belongs to it; several engines may share one, each with its own KV cache."""

    model: CausalModel
    tokenizer: Tokenizer
    eos_token_ids: frozenset[int]
