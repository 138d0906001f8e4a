"""What must a drafter do to plug in, and what does it get?

Always true: whatever a proposer does, the output law stays the target's; only speed is at stake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from specinfer.protocols.grammar import ConstraintView
from specinfer.protocols.model import CausalModel, KVLayerSpec, LoadedModel, Tokenizer
from specinfer.protocols.randomness import Randomness
from specinfer.types import Draft, SamplingParams


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
    def cache_salt(self) -> str:
        """Whose request it is: nothing learnt under one salt may be shown under another."""
        ...

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

    @property
    def constraint(self) -> ConstraintView | None:
        """The form of its output, None where it is free."""
        ...

    @property
    def block_ids(self) -> Sequence[int]:
        """Its block table. During `propose`, for a proposer that claimed KV, it also covers the slots of
        num_draft_tokens + extra_slots tokens behind `token_ids`; what is written there is gone after the call.
        """
        ...


@dataclass(slots=True)
class KVClaim:
    """Cache layers of a proposer's own, in the same slots and blocks as the target's."""

    specs: Sequence[KVLayerSpec]
    dtype: torch.dtype
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """(K, V) a layer, K [num_slots, num_kv_heads, key_dim]; filled by the engine when all proposers are bound"""


@dataclass(slots=True)
class DraftResources:
    """What the proposers of one engine ask it for while they are bound; combinators hand it through."""

    hidden_points: set[int] = field(default_factory=set)
    """Hidden states that are captured at every step: i is what enters layer i, AFTER_FINAL_NORM what the head reads"""
    claims: list[KVClaim] = field(default_factory=list)
    lookahead: int = 0
    """Tokens behind a slot that its drafter K/V depends on: a cached block is found only where these follow it too"""
    extra_slots: int = 0
    """Slots beyond the draft's length that drafting itself writes to"""

    def want_hidden(self, *points: int) -> None:
        """Have hidden states captured; they reach `observe`."""
        self.hidden_points.update(points)

    def claim_kv(
        self, specs: Sequence[KVLayerSpec], dtype: torch.dtype, *, lookahead: int = 0, extra_slots: int = 0
    ) -> KVClaim:
        """Ask for cache layers, and for slots to draft in."""
        claim = KVClaim(tuple(specs), dtype)
        self.claims.append(claim)
        self.lookahead = max(self.lookahead, lookahead)
        self.extra_slots = max(self.extra_slots, extra_slots)
        return claim


def _always(request: RequestView, depth: int, probs: Tensor) -> bool:
    return True


def _no_builder(proposer: Any) -> Any:
    if isinstance(proposer, str):
        raise NotImplementedError(f"this context builds no proposers (asked for {proposer!r})")
    return proposer


def _no_loader(name: str) -> LoadedModel:
    raise NotImplementedError(f"this context loads no models (asked for {name!r})")


@dataclass(frozen=True, slots=True)
class ProposerContext:
    """What an engine hands to its proposer, once, before any request."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    tokenizer: Tokenizer
    randomness: Randomness
    device: torch.device
    target: CausalModel
    """A HiddenStateModel where the target offers its inside"""
    block_size: int = 16
    kv_cache: Sequence[tuple[Tensor, Tensor]] = ()
    """The target's own cache, for drafters that run a part of the target"""
    resources: DraftResources = field(default_factory=DraftResources)
    continues: Callable[[RequestView, int, Tensor], bool] = _always
    """(request, depth, law at that depth) -> whether the controller lets the draft grow to this depth. Asked before
    the token of that depth is drawn, so that stopping there is exact."""
    is_filtered: bool = False
    """Draw from laws restricted to what a request's form allows, and hand these over as q"""
    load_model: Callable[[str], LoadedModel] = _no_loader
    """A model by name, folder or hub id, as the engine loads its target"""
    build: Callable[[Any], Any] = _no_builder
    """A proposer from its short name or path, or the instance that it is given; for combinators"""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a step computed and kept, for every request that was in it, finished ones too.

    Always true: tokens `starts[i]:ends[i]` of request i have K/V that stands, and `token_ids[ends[i]]` exists.
    """

    requests: Sequence[RequestView]
    starts: Sequence[int]
    ends: Sequence[int]
    block_tables: Sequence[Sequence[int]]
    hidden: Mapping[int, Tensor]
    """[sum(ends - starts), hidden_size] a captured point, request after request"""
    drafts: Sequence[Draft | None]
    """The draft that was verified"""
    choices: Sequence[Sequence[int]]
    """The target's most likely token at each row of that draft [1 + num_draft_tokens]; empty without one"""


class Proposer(Protocol):
    """Guesses continuations. Whatever it guesses, the output law stays the target's; only speed is at stake.

    A proposer that samples draws through `context.randomness` with Purpose.DRAFT and returns the law it drew from.
    One that claimed KV or wanted hidden states also has

        observe(observation: Observation) -> None

    called after every step, before `propose`; it may have it without.
    """

    num_draft_tokens: int
    """Draft length (nodes of a tree) where neither the request nor the controller says otherwise."""

    def bind(self, context: ProposerContext) -> None:
        """Get ready for one engine: check that it fits, load weights, ask `context.resources` for what it needs."""
        ...

    def start(self, request: RequestView) -> None:
        """See a request for the first time, before it is scheduled."""
        ...

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> Sequence[Draft | None]:
        """One draft a request, of at most num_draft_tokens[i] (>= 1) tokens; None or empty where there is none.

        The drafts continue `token_ids`. A call that raises is repeated for each request alone, so it must leave its
        state as it was.
        """
        ...

    def stop(self, request_id: str) -> None:
        """Forget a request: finished, aborted, or its drafting failed."""
        ...
