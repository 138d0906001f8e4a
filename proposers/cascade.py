"""What follows a good drafter's last token, by the text alone?

Always true: a token of the first part keeps the law it was drawn from, a token of the second has a one-hot q, given the
draft before it; no token is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proposers.combination import Combination, Parts, has_tokens, short_name, sourced
from proposers.continuation import ContinuedRequest, binds_to_tokens_only, joined
from specinfer.errors import PluginError, check_count
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


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
        if not binds_to_tokens_only(second, context):
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
                if more is None or not has_tokens(more):
                    continue
                if more.probs is not None:  # its noise could come again at a later step
                    raise PluginError("cascade.second sampled its draft; only a one-hot q can continue another's draft")
                drafts[i] = joined(drafts[i], sourced(more, second))
        return [draft if has_tokens(draft) else None for draft in drafts]
