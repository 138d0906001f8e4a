"""How is a proposer played in a test, right or wrong on purpose?

Always true: a scripted draft depends only on the request's tokens and, where it samples, on the randomness given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specinfer.protocols import DrawKey, ProposerContext, Purpose, RequestView
from specinfer.types import Draft

Script = Callable[[list[int], int], Sequence[int] | None]
"""(tokens so far, most tokens to draft) -> draft token ids."""


@dataclass
class ScriptedProposer:
    """Drafts what `script` says, with a one-hot q; counts what it was asked."""

    script: Script
    num_draft_tokens: int = 4
    name: str = "scripted"
    num_calls: int = field(init=False, default=0)
    started: list[str] = field(init=False, default_factory=list)
    stopped: list[str] = field(init=False, default_factory=list)
    context: ProposerContext = field(init=False, repr=False)

    def bind(self, context: ProposerContext) -> None:
        self.context = context

    def start(self, request: RequestView) -> None:
        self.started.append(request.request_id)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        """Ask the script, request by request."""
        self.num_calls += 1
        drafts: list[Draft | None] = []
        for request, length in zip(requests, num_draft_tokens, strict=True):
            token_ids = self.script(request.token_ids.tolist(), length)
            drafts.append(None if token_ids is None else Draft(token_ids))
        return drafts

    def stop(self, request_id: str) -> None:
        self.stopped.append(request_id)


@dataclass
class SampledProposer(ScriptedProposer):
    """Draws each token from `law(tokens so far)`, a q [vocab_size] of any shape, and hands q over with the draft."""

    script: Script = lambda tokens, length: None
    law: Callable[[list[int]], torch.Tensor] = field(kw_only=True)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        """Sample a chain of the asked length for every request."""
        self.num_calls += 1
        return [self._draw(request, length) for request, length in zip(requests, num_draft_tokens, strict=True)]

    def _draw(self, request: Any, length: int) -> Draft:
        tokens = request.token_ids.tolist()
        position = len(tokens) - request.num_prompt_tokens
        drawn: list[int] = []
        laws: list[torch.Tensor] = []
        for index in range(length):
            q = self.law(tokens + drawn)
            key = DrawKey(request.seed, position + index, Purpose.DRAFT, index)
            drawn.append(self.context.randomness.categorical(q, key))
            laws.append(q)
        return Draft(drawn, probs=torch.stack(laws))
