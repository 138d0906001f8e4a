"""What does decoding without a draft look like to the engine?

Always true: nothing is drafted, so every step takes the plain path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


@dataclass
class NoProposer:
    """The plain baseline."""

    num_draft_tokens: int = field(default=0, init=False)

    def bind(self, context: ProposerContext) -> None:
        """Nothing to get ready."""

    def start(self, request: RequestView) -> None:
        """Nothing is kept."""

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [None] * len(requests)

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""
