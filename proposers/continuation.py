"""How does one proposer continue behind another's draft?

Always true: each token keeps its law; what continues a draft is a function of tokens, with a one-hot q.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proposers.combination import has_tokens
from specinfer.protocols import Bitmask, ConstraintView, FormRows, Proposer, ProposerContext, RequestView
from specinfer.types import Draft, SamplingParams


@dataclass(frozen=True, slots=True)
class ContinuedForm:
    """The form of a request as if some chain of tokens were committed."""

    constraint: ConstraintView
    token_ids: tuple[int, ...]

    def rows(self, draft: Draft | None = None) -> FormRows:
        num = len(self.token_ids)
        behind = Draft(self.token_ids) if draft is None else joined(Draft(self.token_ids), draft)
        rows = self.constraint.rows(behind)
        return FormRows(rows.bitmask[num:], rows.is_legal[num:], rows.states[num:])

    def row_behind(self, token_ids: Sequence[int]) -> Bitmask | None:
        return self.constraint.row_behind((*self.token_ids, *token_ids))

    def forced_bytes_behind(self, token_ids: Sequence[int]) -> bytes:
        return self.constraint.forced_bytes_behind((*self.token_ids, *token_ids))


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
    constraint: ConstraintView | None
    block_ids: Sequence[int]

    @classmethod
    def behind(cls, request: RequestView, token_ids: Sequence[int]) -> ContinuedRequest:
        names = [item.name for item in dataclasses.fields(cls) if item.name not in {"token_ids", "constraint"}]
        extended = np.concatenate([request.token_ids, np.array(token_ids, dtype=np.int64)])
        form = None if request.constraint is None else ContinuedForm(request.constraint, tuple(token_ids))
        return cls(token_ids=extended, constraint=form, **{name: getattr(request, name) for name in names})


def binds_to_tokens_only(proposer: Proposer, context: ProposerContext) -> bool:
    """Bind a proposer; whether it reads nothing but tokens, so that it can continue a draft."""
    before = len(context.resources.claims), set(context.resources.hidden_points)
    proposer.bind(context)
    after = len(context.resources.claims), set(context.resources.hidden_points)
    return before == after and not hasattr(proposer, "observe")


def joined(begun: Draft, more: Draft) -> Draft:
    """A chain and what follows it, as one draft."""
    if not has_tokens(begun):
        return more
    num = len(begun.token_ids)
    parents = None
    if more.parents is not None:
        parents = [*range(-1, num - 1), *(parent + num for parent in more.parents)]
    return Draft(
        [*begun.token_ids, *more.token_ids],
        _joined_laws(begun, more),
        None if more.provenance is None else [*(begun.provenance or ()), *more.provenance],
        parents,
    )


def _joined_laws(begun: Draft, more: Draft) -> Tensor | None:
    if begun.probs is None and more.probs is None:
        return None
    like = begun.probs if begun.probs is not None else more.probs
    assert like is not None
    laws = [one_hot(d.token_ids, like) if d.probs is None else d.probs for d in (begun, more)]
    return torch.cat(laws)


def one_hot(token_ids: Sequence[int], like: Tensor) -> Tensor:
    """q of a deterministic draft in rows [num_tokens, vocab_size], in `like`'s type and place."""
    rows = like.new_zeros(len(token_ids), like.shape[-1])
    for row, token_id in enumerate(token_ids):
        rows[row, token_id] = 1
    return rows
