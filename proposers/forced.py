"""What does the form of an output leave no choice about?

Text that every continuation begins with, such as the keys of a JSON schema, is drafted without asking a model. Always
true: it is a draft with a one-hot q like any other and is verified, since forced text can be cut into tokens in more
than one way; only where exactly one token is legal is the target's law itself one-hot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proposers.combination import Combination, Parts, has_tokens, sourced
from proposers.continuation import ContinuedRequest, binds_to_tokens_only, joined
from specinfer.protocols import ConstraintView, ProposerContext, RequestView
from specinfer.structured.bitmask import members, popcounts
from specinfer.types import Draft


@dataclass
class ForcedProposer(Combination):
    """Drafts what is forced, then `inner`.

    Behind forced tokens `inner` continues if it reads tokens only, as ngram and suffix do; one with hidden states or
    K/V drafts where nothing is forced.
    """

    num_draft_tokens: int = field(default=8, kw_only=True)
    inner: Any = "ngram"

    _continues: bool = field(default=False, init=False, repr=False, compare=False)
    _context: ProposerContext = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for a part that is none."""
        self._check("forced", [self.inner])

    def bind(self, context: ProposerContext) -> None:
        """Build and bind the inner proposer."""
        self._parts = Parts.build([self.inner], context)
        self._continues = binds_to_tokens_only(self._parts.proposers[0], context)
        self._context = context

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        drafts = [
            Draft([]) if request.constraint is None else self._forced(request.constraint, length)
            for request, length in zip(requests, num_draft_tokens, strict=True)
        ]
        asked = [
            i
            for i, draft in enumerate(drafts)
            if not has_tokens(draft) or (self._continues and len(draft.token_ids) < num_draft_tokens[i])
        ]
        inner = self._parts.proposers[0]
        views = [
            ContinuedRequest.behind(requests[i], ids) if (ids := drafts[i].token_ids) else requests[i] for i in asked
        ]
        lengths = [num_draft_tokens[i] - len(drafts[i].token_ids) for i in asked]
        for i, more in zip(asked, inner.propose(views, lengths) if asked else (), strict=True):
            # Noise drawn behind a draft would come again at a later step: such a continuation is dropped whole.
            if more is not None and has_tokens(more) and (more.probs is None or not has_tokens(drafts[i])):
                drafts[i] = joined(drafts[i], sourced(more, inner))
        return [draft if has_tokens(draft) else None for draft in drafts]

    def _forced(self, constraint: ConstraintView, length: int) -> Draft:
        """The forced tokens from here on, at most `length`."""
        found: list[int] = []
        while len(found) < length:
            row = constraint.row_behind(found)
            if row is None or not row.any():
                break
            if popcounts(row[None])[0] == 1:
                found.append(int(np.flatnonzero(members(row))[0]))
                continue
            spelled = self._spelled(constraint, found)
            if not spelled:
                break
            found += spelled
        return Draft(found[:length], provenance=["forced"] * min(len(found), length))

    def _spelled(self, constraint: ConstraintView, before: Sequence[int]) -> list[int]:
        """Forced text in the tokenizer's own tokens, as far as it is sure: what follows may join the last token."""
        text = constraint.forced_bytes_behind(before).decode(errors="ignore")
        if not text:
            return []
        token_ids = self._context.tokenizer.encode_plain(text)
        return token_ids[:-1] if len(token_ids) > 1 else token_ids
