"""Who drafts where the first choice has nothing to say?

Always true: a draft comes whole from one of the two, with its q; whose it is depends on whether the first has a draft,
never on the tokens in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proposers.combination import Combination, Parts
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


@dataclass
class FallbackProposer(Combination):
    """Asks `first`; where it has no draft, `second`.

    Exact if whether `first` has a draft does not depend on what it drew, which holds for any that stops before drawing.
    """

    first: Any = "ngram"
    second: Any = "eagle"

    def __post_init__(self) -> None:
        """Raise ConfigError for parts that are none."""
        self._check("fallback", [self.first, self.second])

    def bind(self, context: ProposerContext) -> None:
        """Build both and bind them to the same engine."""
        self._parts = Parts.build([self.first, self.second], context)
        for proposer in self._parts.proposers:
            proposer.bind(context)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        found = self._parts.ask(requests, num_draft_tokens, [(0, 1)] * len(requests))
        return [None if item is None else item[1] for item in found]
