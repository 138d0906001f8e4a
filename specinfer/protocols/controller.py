"""What must a draft-length controller do to plug in?

Always true: a controller changes how much is drafted, never the output law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specinfer.protocols.proposer import RequestView


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How busy the engine is at this step."""

    num_running: int
    num_waiting: int


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step took; seconds. Steps with prefill are told apart, since they compute many more tokens."""

    num_requests: int
    num_tokens: int
    """Tokens of the forward, drafts included"""
    num_draft_tokens: int
    """Draft tokens among them"""
    max_draft_tokens: int
    """Those of the longest draft"""
    has_prefill: bool
    draft_s: float
    """Drafting of the tokens that this step verified"""
    forward_s: float
    other_s: float
    """Verification, scheduling, commit"""


class DraftController(Protocol):
    """Decides how many tokens to draft for a request at a step; 0 takes the plain path.

    It may also have

        continues(request: RequestView, depth: int, probs: Tensor) -> bool
            whether a draft may grow to `depth` (0 for its first token), from the drafter's law there, before the
            token is drawn
        observe_step(cost: StepCost) -> None
            see what a step took
    """

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        """The draft length, or None for the proposer's own."""
        ...

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """See what became of a draft."""
        ...

    def stop(self, request_id: str) -> None:
        """Forget a request."""
        ...
