"""What would a drafter say if it knew the form of the output?

Always true: what reaches the verifier is drawn from q restricted to the legal tokens, and comes with that law. A
drafter that can draw from a restricted law does (ProposerContext.is_filtered); the draft of one that cannot ends before
its first illegal token, and the laws of what is left are restricted afterwards, which is as exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proposers.combination import Combination, Parts, has_tokens, sourced
from specinfer.forms import IllegalDrafts
from specinfer.protocols import ProposerContext, RequestView
from specinfer.structured.drafts import fitted
from specinfer.types import Draft


@dataclass
class FilteredProposer(Combination):
    """`inner`, drafting legal tokens only where the output has a form."""

    inner: Any = "ngram"

    def __post_init__(self) -> None:
        """Raise ConfigError for a part that is none."""
        self._check("filtered", [self.inner])

    def bind(self, context: ProposerContext) -> None:
        """Build the inner proposer and have it draw from restricted laws."""
        self._parts = Parts.build([self.inner], context)
        self._parts.proposers[0].bind(dataclasses.replace(context, is_filtered=True))

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        inner = self._parts.proposers[0]
        drafts = inner.propose(requests, num_draft_tokens)
        return [
            _legal_part(request, sourced(draft, inner)) if draft is not None and has_tokens(draft) else None
            for request, draft in zip(requests, drafts, strict=True)
        ]


def _legal_part(request: RequestView, draft: Draft) -> Draft | None:
    if request.constraint is None:
        return draft
    return fitted(draft, request.constraint.rows(draft), IllegalDrafts.CUT)
