"""Who drafts, how much, and what happens when a drafter misbehaves?

Always true: after `propose`, a request's draft is valid (ids in the vocabulary, within its length, q a law) and short
enough for its limits, or there is none; a drafter's fault costs its request the speed-up and nothing else.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from specinfer.engine.draft_checks import checked_draft
from specinfer.engine.masking import fit_draft
from specinfer.engine.request import Request
from specinfer.engine.scheduler import Scheduler
from specinfer.forms import IllegalDrafts
from specinfer.protocols import (
    DraftController,
    DraftResources,
    EngineLoad,
    Observation,
    Proposer,
    ProposerContext,
    RequestView,
    StepCost,
)
from specinfer.types import Draft


class Drafter:
    """A proposer under a controller, kept from harming the engine."""

    def __init__(
        self,
        proposer: Proposer,
        controller: DraftController,
        context: ProposerContext,
        illegal_drafts: IllegalDrafts = IllegalDrafts.KEEP,
    ) -> None:
        """illegal_drafts: what becomes of draft tokens that a request's form forbids."""
        self.proposer = proposer
        self.controller = controller
        self.vocab_size = context.vocab_size
        self.num_errors = 0
        self._illegal_drafts = illegal_drafts
        self._is_blind = False
        continues = getattr(controller, "continues", None)
        if continues is not None:
            context = dataclasses.replace(context, continues=partial(self._continues, continues))
        proposer.bind(context)
        self.resources: DraftResources = context.resources
        self.observes = hasattr(proposer, "observe")

    def start(self, request: Request) -> None:
        """Introduce a request."""
        self._guard(request, self.proposer, self.proposer.start, request)

    def stop(self, request: Request) -> None:
        """Let proposer and controller forget a request."""
        self._guard(request, self.proposer, self.proposer.stop, request.request_id)
        self._guard(request, self.controller, self.controller.stop, request.request_id)

    def count(self, request: Request, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Count a verified draft and tell the controller."""
        request.num_draft_tokens += num_draft_tokens
        request.num_accepted_tokens += num_accepted_tokens
        self._guard(request, self.controller, self.controller.observe, request, num_draft_tokens, num_accepted_tokens)

    def observe(self, observation: Observation, requests: Sequence[Request]) -> bool:
        """Show the proposer what a step computed; whether it took it. One that fails drafts for them no more."""
        try:
            self.proposer.observe(observation)  # type: ignore[attr-defined]  # looked for in __init__
        except Exception as error:  # whatever a foreign proposer raises
            for request in requests:
                self._disable(request, self.proposer, f"observe raised {type(error).__name__}: {error}")
            return False
        return True

    def observe_step(self, cost: StepCost) -> None:
        """Tell the controller what a step took; one that fails here is not told again."""
        see = getattr(self.controller, "observe_step", None)
        if see is not None and not self._is_blind:
            try:
                see(cost)
            except Exception:  # a foreign controller's fault: it goes on without costs
                self._is_blind = True
                self.num_errors += 1

    def propose(self, requests: Sequence[Request], load: EngineLoad, scheduler: Scheduler) -> None:
        """Set the draft of every request that is to have one at the next step."""
        chosen: list[Request] = []
        lengths: list[int] = []
        for request in requests:
            length = self._length(request, load)
            if length > 0 and self.resources.claims:
                extra = 1 + self.resources.extra_slots  # the pending token's own slot, and the proposer's
                length = min(length, scheduler.reserve(request, length + extra) - extra)
            if length > 0:
                chosen.append(request)
                lengths.append(length)
        if chosen:
            for request, length, draft in zip(chosen, lengths, self._ask(chosen, lengths), strict=True):
                self._guard(request, self.proposer, self._accept_draft, request, length, draft)
        if self.resources.claims:
            for request in requests:
                scheduler.release_reserved(request)

    def _continues(self, ask: Callable[..., bool], request: RequestView, depth: int, probs: Tensor) -> bool:
        """The controller's answer; a controller that fails lets drafts grow."""
        try:
            return bool(ask(request, depth, probs))
        except Exception:  # a foreign controller's fault must not end the drafter's work
            self.num_errors += 1
            return True

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
            request.draft = fit_draft(request, checked_draft(draft, length, self.vocab_size), self._illegal_drafts)

    def _guard(self, request: Request, plugin: object, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # a plugin's fault stays with its request
            self._disable(request, plugin, f"{type(error).__name__}: {error}")
            return None

    def _disable(self, request: Request, plugin: object, error: str) -> None:
        request.draft_error = f"{type(plugin).__name__}: {error}; the request went on without drafts"
        request.draft = request.draft_census = None
        self.num_errors += 1
