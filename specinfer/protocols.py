"""What must a model, a drafter, a verifier, a controller or a tracker do to plug in?

Structural protocols: a plugin inherits from nothing. Notation, here and in the verifiers only: p is the target's law
at a position after every sampling parameter, q the law that a draft token was really drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from specinfer.types import ChatMessage, Draft, SamplingParams

# --------------------------------------------------------------------------------------------- randomness


class Purpose(IntEnum):
    """What a draw decides. Draws of different purposes never share noise.

    A bonus token is the plain sample of its position, so it has no purpose of its own: with drafts rejected or
    without any, position j's SAMPLE noise is used at most once.
    """

    SAMPLE = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


@dataclass(frozen=True, slots=True)
class DrawKey:
    """Where a draw belongs; equal keys give equal noise, whatever the batch.

    `position` counts the request's output tokens, 0 for the first; `index` separates draws of one purpose at one
    position. A drafter counts its depth there: a position that was drafted behind a rejected token is drafted again.
    """

    request_seed: int
    position: int
    purpose: Purpose
    index: int = 0


class Randomness(Protocol):
    """The only source of chance: two operations, so that a test can enumerate every outcome."""

    def bernoulli(self, prob: float, key: DrawKey) -> bool:
        """True with probability min(prob, 1): u < prob, strict, with u uniform in [0, 1)."""
        ...

    def categorical(self, probs: Tensor, key: DrawKey) -> int:
        """An index drawn with weight probs [n], which need not sum to 1; never an index of weight 0."""
        ...


# ----------------------------------------------------------------------------------------------- the model


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
        K [num_slots, num_kv_heads, key_dim], V [num_slots, num_kv_heads, value_dim].
        """
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

    def __len__(self) -> int:
        """Count of token ids with a meaning; the model's logits may be wider (padding rows)."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with what belongs to it; several engines may share one, each with its own KV cache."""

    model: CausalModel
    tokenizer: Tokenizer
    eos_token_ids: frozenset[int]


# ------------------------------------------------------------------------------------------------ proposers


class RequestView(Protocol):
    """What plugins may read of a request; the engine's own object, read-only by agreement."""

    @property
    def request_id(self) -> str: ...
    @property
    def token_ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Prompt and committed output, int64 [num_tokens]; a view, valid during the call."""
        ...

    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def params(self) -> SamplingParams: ...
    @property
    def seed(self) -> int:
        """The request's seed for DrawKey, given or derived."""
        ...

    @property
    def num_draft_tokens(self) -> int:
        """Tokens drafted for it and verified so far."""
        ...

    @property
    def num_accepted_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ProposerContext:
    """What an engine hands to its proposer, once, before any request."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer
    randomness: Randomness
    device: torch.device


class Proposer(Protocol):
    """Guesses continuations. Whatever it guesses, the output law stays the target's; only speed is at stake.

    A proposer that samples draws through `context.randomness` with Purpose.DRAFT and returns the law it drew from.
    """

    num_draft_tokens: int
    """Draft length where neither the request nor the controller says otherwise."""

    def bind(self, context: ProposerContext) -> None:
        """Get ready for one engine: check that it fits, load weights, allocate."""
        ...

    def start(self, request: RequestView) -> None:
        """See a request for the first time, before it is scheduled."""
        ...

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> Sequence[Draft | None]:
        """One draft a request, at most num_draft_tokens[i] (>= 1) tokens long; None or empty where there is none.

        The drafts continue `token_ids`. A call that raises is repeated for each request alone, so it must leave its
        state as it was.
        """
        ...

    def stop(self, request_id: str) -> None:
        """Forget a request: finished, aborted, or its drafting failed."""
        ...


# ------------------------------------------------------------------------------------------------ verifiers


class TargetRows(Protocol):
    """The target's law p at a request's rows: row i after i draft tokens, the last after all of them.

    Greedy requests have a one-hot p and use no noise. Always true: p holds every sampling parameter.
    """

    @property
    def is_greedy(self) -> bool: ...

    def prob(self, row: int, token_id: int) -> float:
        """p(token) at `row`."""
        ...

    def probs(self, row: int) -> Tensor:
        """p at `row`, [vocab_size]; not to be modified."""
        ...

    def sample(self, row: int, key: DrawKey) -> int:
        """A token drawn from p at `row`: the argmax when greedy."""
        ...


@dataclass(slots=True)
class VerifyItem:
    """One request's draft and the target's rows for it."""

    target: TargetRows
    draft: Draft
    seed: int
    position: int
    """Output position of the first draft token."""

    def key(self, row: int, purpose: Purpose, index: int = 0) -> DrawKey:
        """The key of a draw that decides the token of `row`."""
        return DrawKey(self.seed, self.position + row, purpose, index)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first `num_accepted` draft tokens stand, then comes `token_id`."""

    num_accepted: int
    token_id: int


@dataclass(frozen=True, slots=True)
class OutputLaw:
    """What a verifier promises of the emitted tokens: exactly p, or not, by a named parameter."""

    is_exact: bool
    parameter: str | None = None


class Verifier(Protocol):
    """Decides which draft tokens stand, and the token after them."""

    @property
    def law(self) -> OutputLaw: ...

    def verify(self, items: Sequence[VerifyItem], randomness: Randomness) -> list[Verdict]:
        """One verdict an item, in order; drafts have at least one token."""
        ...


# ---------------------------------------------------------------------------------------------- controllers


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy the engine is at this step."""

    num_running: int
    num_waiting: int


class DraftController(Protocol):
    """Decides how many tokens to draft for a request at a step; 0 takes the plain path."""

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        """The draft length, or None for the proposer's own."""
        ...

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """See what became of a draft."""
        ...

    def stop(self, request_id: str) -> None:
        """Forget a request."""
        ...


# ------------------------------------------------------------------------------------------------- trackers


@runtime_checkable
class Tracker(Protocol):
    """Somewhere to record a run. A failure in any method warns and never ends the run."""

    def start(self, run_dir: Path, config: Mapping[str, Any], *, name: str, group: str, job_type: str) -> None:
        """Begin a run whose files live in `run_dir`."""
        ...

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record scalars at `step`, which never decreases."""
        ...

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Record a table."""
        ...

    def artifact(self, path: Path, kind: str) -> None:
        """Record a file of the run folder; kind is `figure`, `table`, `events` or `report`."""
        ...

    def summary(self, values: Mapping[str, Any]) -> None:
        """Record the run's final figures."""
        ...

    def finish(self) -> None:
        """End the run and flush."""
        ...
