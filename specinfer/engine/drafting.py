"""Who drafts, how much, and what happens when a drafter misbehaves?

Always true: after `propose`, a request's draft is valid (ids in the vocabulary, within its length, q a law) and short
enough for its limits, or there is none; a drafter's fault costs its request the speed-up and nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from specinfer.engine.request import Request
from specinfer.errors import PluginError
from specinfer.protocols import DraftController, EngineLoad, Proposer, ProposerContext
from specinfer.types import Draft


class Drafter:
    """A proposer under a controller, kept from harming the engine."""

    def __init__(self, proposer: Proposer, controller: DraftController, context: ProposerContext) -> None:
        self.proposer = proposer
        self.controller = controller
        self.vocab_size = context.vocab_size
        self.num_errors = 0
        proposer.bind(context)

    def start(self, request: Request) -> None:
        """Introduce a request."""
        self._guard(request, self.proposer, self.proposer.start, request)

    def stop(self, request: Request) -> None:
        """Let proposer and controller forget a request."""
        self._guard(request, self.proposer, self.proposer.stop, request.request_id)
        self._guard(request, self.controller, self.controller.stop, request.request_id)

    def observe(self, request: Request, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Count a verified draft and tell the controller."""
        request.num_draft_tokens += num_draft_tokens
        request.num_accepted_tokens += num_accepted_tokens
        self._guard(request, self.controller, self.controller.observe, request, num_draft_tokens, num_accepted_tokens)

    def propose(self, requests: Sequence[Request], load: EngineLoad) -> None:
        """Set the draft of every request that is to have one at the next step."""
        chosen: list[Request] = []
        lengths: list[int] = []
        for request in requests:
            length = self._length(request, load)
            if length > 0:
                chosen.append(request)
                lengths.append(length)
        if not chosen:
            return
        for request, length, draft in zip(chosen, lengths, self._ask(chosen, lengths), strict=True):
            self._guard(request, self.proposer, self._accept_draft, request, length, draft)

    def _length(self, request: Request, load: EngineLoad) -> int:
        """Tokens to draft: the request's wish, else the controller's, else the proposer's, within the request's limits.

        A draft longer than the remaining output less one could never be emitted whole.
        """
        room = request.max_output_tokens - request.num_output_tokens - 1
        if request.draft_error is not None or request.num_pending_tokens != 1 or room < 1:
            return 0
        wish = request.params.num_draft_tokens
        if wish is None:
            wish = self._guard(request, self.controller, self._controller_wish, request, load)
        if wish is None and request.draft_error is None:
            wish = self._guard(request, self.proposer, lambda: operator.index(self.proposer.num_draft_tokens))
        return min(wish or 0, room)

    def _controller_wish(self, request: Request, load: EngineLoad) -> int | None:
        wish = self.controller.num_draft_tokens(request, load)
        return None if wish is None else operator.index(wish)

    def _ask(self, requests: list[Request], lengths: list[int]) -> Sequence[Any]:
        try:
            drafts = self.proposer.propose(requests, lengths)
            if len(drafts) == len(requests):
                return drafts
            error = f"propose returned {len(drafts)} drafts for {len(requests)} requests"
        except Exception as raised:  # whatever a foreign proposer raises
            error = f"propose raised {type(raised).__name__}: {raised}"
        if len(requests) == 1:
            self._disable(requests[0], self.proposer, error)
            return [None]
        return [self._ask([request], [length])[0] for request, length in zip(requests, lengths, strict=True)]

    def _accept_draft(self, request: Request, length: int, draft: Draft | None) -> None:
        if draft is not None and len(draft.token_ids):
            draft.token_ids = _checked_ids(draft.token_ids, length, self.vocab_size)
            if draft.probs is not None:
                draft.probs = _checked_probs(draft.token_ids, draft.probs, self.vocab_size)
            if draft.provenance is not None and len(draft.provenance) != len(draft.token_ids):
                raise PluginError(f"provenance has {len(draft.provenance)} entries for {len(draft.token_ids)} tokens")
            request.draft = draft

    def _guard(self, request: Request, plugin: object, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # a plugin's fault stays with its request
            self._disable(request, plugin, f"{type(error).__name__}: {error}")
            return None

    def _disable(self, request: Request, plugin: object, error: str) -> None:
        request.draft_error = f"{type(plugin).__name__}: {error}; the request went on without drafts"
        request.draft = None
        self.num_errors += 1


def _checked_ids(token_ids: Sequence[int], length: int, vocab_size: int) -> list[int]:
    """The ids as plain integers; PluginError for more than were asked for or one outside the vocabulary."""
    if len(token_ids) > length:
        raise PluginError(f"{len(token_ids)} draft tokens where at most {length} were asked for")
    ids = np.asarray(token_ids)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise PluginError(f"draft token ids must be a flat list of integers, got {token_ids!r}")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise PluginError(f"draft token ids {ids.tolist()} leave the vocabulary 0..{vocab_size - 1}")
    return [int(i) for i in ids]


def _checked_probs(token_ids: Sequence[int], probs: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """q with rows that sum to 1; PluginError unless each is a law that its token could have been drawn from.

    A draw from weights follows their normalised law, so that is the q to verify with: rounding in a drafter's sum
    would otherwise bias the output.
    """
    if tuple(probs.shape) != (len(token_ids), vocab_size):
        raise PluginError(f"draft probs have shape {tuple(probs.shape)}, expected {(len(token_ids), vocab_size)}")
    if not bool(torch.isfinite(probs).all()) or bool((probs < 0).any()):
        raise PluginError("draft probs hold a NaN, infinite or negative value")
    sums = probs.sum(dim=-1, keepdim=True, dtype=torch.float64)
    if bool((sums - 1).abs().max() > 1e-3):
        raise PluginError(f"draft probs must sum to 1 at every row, got {sums[:, 0].tolist()}")
    drawn = probs[torch.arange(len(token_ids)), torch.as_tensor(token_ids, device=probs.device)]
    if bool((drawn <= 0).any()):
        raise PluginError(f"a draft token has q = 0 under the law it came with: {drawn.tolist()}")
    return (probs / sums).to(probs.dtype)
