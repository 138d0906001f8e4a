"""What do proposers that consist of proposers have in common?

Always true: each token keeps the law q that it was drawn from, and `provenance` says who proposed it; the calls that a
combination gets, its parts get.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import Observation, Proposer, ProposerContext, RequestView
from specinfer.types import Draft


def short_name(proposer: object) -> str:
    """`prompt_ahead` for a PromptAheadProposer."""
    name = type(proposer).__name__.removesuffix("Proposer") or "proposer"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def sourced(draft: Draft, proposer: object) -> Draft:
    """The draft with a provenance: that of a combinator within, else the proposer's name."""
    if draft.provenance is not None:
        return draft
    return dataclasses.replace(draft, provenance=[short_name(proposer)] * len(draft.token_ids))


def has_tokens(draft: Draft | None) -> bool:
    """Whether there is anything to verify."""
    return draft is not None and len(draft.token_ids) > 0


@dataclass(slots=True)
class Parts:
    """The proposers within a combinator."""

    proposers: list[Proposer]

    @classmethod
    def build(cls, specs: Sequence[Any], context: ProposerContext) -> Parts:
        """Instances as they are, names built; not bound yet."""
        return cls([context.build(spec) for spec in specs])

    @property
    def observers(self) -> list[Callable[[Observation], None]]:
        return [proposer.observe for proposer in self.proposers if hasattr(proposer, "observe")]

    def ask(
        self, requests: Sequence[RequestView], lengths: Sequence[int], orders: Sequence[Sequence[int]]
    ) -> list[tuple[int, Draft] | None]:
        """Each request's draft from the first in its order that has one, and who that is; each is asked once a turn."""
        found: list[tuple[int, Draft] | None] = [None] * len(requests)
        for turn in range(max(map(len, orders), default=0)):
            waiting = [i for i, order in enumerate(orders) if found[i] is None and turn < len(order)]
            for index, proposer in enumerate(self.proposers):
                chosen = [i for i in waiting if orders[i][turn] == index]
                if not chosen:
                    continue
                drafts = proposer.propose([requests[i] for i in chosen], [lengths[i] for i in chosen])
                for i, draft in zip(chosen, drafts, strict=True):
                    if draft is not None and has_tokens(draft):
                        found[i] = (index, sourced(draft, proposer))
        return found


@dataclass
class Combination:
    """What the combinators have in common: the calls that each part gets."""

    num_draft_tokens: int = field(default=4, kw_only=True)

    _parts: Parts = field(default_factory=lambda: Parts([]), init=False, repr=False, compare=False)

    @property
    def observe(self) -> Callable[[Observation], None]:
        """There if a part has it."""
        observers = self._parts.observers
        if not observers:
            raise AttributeError("no part observes")

        def forward(observation: Observation) -> None:
            for see in observers:
                see(observation)

        return forward

    def start(self, request: RequestView) -> None:
        for proposer in self._parts.proposers:
            proposer.start(request)

    def stop(self, request_id: str) -> None:
        for proposer in self._parts.proposers:
            proposer.stop(request_id)

    def _check(self, name: str, specs: Sequence[Any]) -> None:
        """Raise ConfigError for a length that cannot work or a part that is none."""
        check_count(f"{name}.num_draft_tokens", self.num_draft_tokens, 0)
        for spec in specs:
            if not isinstance(spec, str) and not callable(getattr(spec, "propose", None)):
                raise ConfigError(f"{name}: a part is a proposer or the name of one, got {spec!r}")
