"""What follows a good drafter's last token, by the text alone?

Always true: a token of the first part keeps the law it was drawn from, a token of the second has a one-hot q, given the
draft before it; no token is dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proposers.combination import Combination, Parts, has_tokens, short_name, sourced
from specinfer.errors import PluginError, check_count
from specinfer.protocols import DraftResources, ProposerContext, RequestView
from specinfer.types import Draft, SamplingParams


@dataclass(frozen=True, slots=True)
class ContinuedRequest:
    """A request as if its draft were committed."""

    request_id: str
    token_ids: NDArray[np.int64]
    num_prompt_tokens: int
    params: SamplingParams
    cache_salt: str
    seed: int
    num_draft_tokens: int
    num_accepted_tokens: int
    block_ids: Sequence[int]

    @classmethod
    def behind(cls, request: RequestView, token_ids: Sequence[int]) -> ContinuedRequest:
        names = [item.name for item in dataclasses.fields(cls) if item.name != "token_ids"]
        extended = np.concatenate([request.token_ids, np.array(token_ids, dtype=np.int64)])
        return cls(token_ids=extended, **{name: getattr(request, name) for name in names})


@dataclass
class CascadeProposer(Combination):
    """`first` drafts a chain of at most `max_first_tokens`; `second` continues behind it, up to the length asked for.

    `second` must be a function of tokens with a one-hot q, as ngram and suffix are: it knows no hidden states or K/V
    behind a draft. A tree of `first` stays as it is.
    """

    num_draft_tokens: int = field(default=8, kw_only=True)
    first: Any = "eagle"
    second: Any = "ngram"
    max_first_tokens: int = 4

    def __post_init__(self) -> None:
        """Raise ConfigError for values that cannot work."""
        self._check("cascade", [self.first, self.second])
        check_count("cascade.max_first_tokens", self.max_first_tokens, 1)

    def bind(self, context: ProposerContext) -> None:
        """Build and bind both; PluginError if the second one needs more than tokens."""
        parts = Parts.build([self.first, self.second], context)
        first, second = parts.proposers
        wanted = DraftResources()
        second.bind(dataclasses.replace(context, resources=wanted))
        if wanted.claims or wanted.hidden_points or hasattr(second, "observe"):
            raise PluginError(
                f"cascade.second={short_name(second)!r} works on hidden states, K/V or observations, which do not "
                f"exist behind a draft; put it first, or take a proposer that reads tokens only, as ngram or suffix"
            )
        first.bind(context)
        self._parts = parts

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        first, second = self._parts.proposers
        lengths = [min(length, self.max_first_tokens) for length in num_draft_tokens]
        begun = first.propose(requests, lengths)
        drafts = [sourced(draft, first) if draft is not None else Draft([]) for draft in begun]
        left = [length - len(draft.token_ids) for length, draft in zip(num_draft_tokens, drafts, strict=True)]
        open_ends = [i for i, draft in enumerate(drafts) if left[i] > 0 and draft.parents is None]
        if open_ends:
            views = [ContinuedRequest.behind(requests[i], drafts[i].token_ids) for i in open_ends]
            continued = second.propose(views, [left[i] for i in open_ends])
            for i, more in zip(open_ends, continued, strict=True):
                if more is not None and has_tokens(more):
                    drafts[i] = _joined(drafts[i], sourced(more, second))
        return [draft if has_tokens(draft) else None for draft in drafts]


def _joined(begun: Draft, more: Draft) -> Draft:
    """One draft; PluginError where the second part was drawn, since its noise could come again at a later step."""
    if more.probs is not None:
        raise PluginError("cascade.second sampled its draft; only a one-hot q can continue another's draft")
    if not has_tokens(begun):
        return more
    num = len(begun.token_ids)
    parents = None
    if more.parents is not None:
        parents = [*range(-1, num - 1), *(parent + num for parent in more.parents)]
    probs = begun.probs
    if probs is not None:
        probs = torch.cat([probs, one_hot(more.token_ids, probs)])
    return Draft(
        [*begun.token_ids, *more.token_ids],
        probs,
        [*(begun.provenance or ()), *(more.provenance or ())],
        parents,
    )


def one_hot(token_ids: Sequence[int], like: Tensor) -> Tensor:
    """q of a deterministic draft in rows [num_tokens, vocab_size], in `like`'s type and place."""
    rows = like.new_zeros(len(token_ids), like.shape[-1])
    for row, token_id in enumerate(token_ids):
        rows[row, token_id] = 1
    return rows
