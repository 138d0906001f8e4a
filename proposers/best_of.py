"""Which of several proposers has done best for this request lately?

Always true: a draft comes whole from one of them, with its q; whose it is depends on what was committed before and on
who has a draft at all, never on a token drawn for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proposers.combination import Combination, Parts
from specinfer.errors import ConfigError, check_count
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


@dataclass(slots=True)
class Record:
    """How well each part did for one request."""

    means: list[float | None]
    """Accepted tokens a draft, the recent ones weighing more; None before the first"""
    last_turns: list[int]
    num_turns: int = 0
    drafted_by: int | None = None
    num_drafted: int = 0
    num_accepted: int = 0

    def settle(self, request: RequestView, decay: float) -> None:
        """Count what became of the last draft, if it was verified at all."""
        drafted = request.num_draft_tokens - self.num_drafted
        accepted = request.num_accepted_tokens - self.num_accepted
        self.num_drafted, self.num_accepted = request.num_draft_tokens, request.num_accepted_tokens
        if self.drafted_by is not None and drafted > 0:
            self.count(self.drafted_by, accepted, decay)
        self.drafted_by = None

    def count(self, index: int, accepted: int, decay: float) -> None:
        mean = self.means[index]
        self.means[index] = accepted if mean is None else decay * mean + (1 - decay) * accepted

    def order(self, explore_every: int) -> list[int]:
        """Untried parts first, then by their means; now and then the one that was not asked for the longest time."""
        indices = range(len(self.means))
        order = sorted(indices, key=lambda i: -(float("inf") if (mean := self.means[i]) is None else mean))
        if explore_every and self.num_turns % explore_every == explore_every - 1:
            oldest = min(indices, key=lambda i: self.last_turns[i])
            order.remove(oldest)
            order.insert(0, oldest)
        return order


@dataclass
class BestOfProposer(Combination):
    """Takes the draft of the part whose recent drafts had most tokens accepted, request by request.

    decay: weight of a part's past against its latest draft. explore_every: once in so many drafts the part that was not
    asked for the longest time goes first; 0 for never. The choice is made before anything is drawn, from committed
    history: choosing between drafts by their tokens, or by what their q makes of them, would be biased.
    """

    proposers: list[Any] = field(default_factory=lambda: ["ngram", "suffix"])
    decay: float = 0.8
    explore_every: int = 16

    _records: dict[str, Record] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for values that cannot work."""
        self._check("best_of", self.proposers)
        check_count("best_of.explore_every", self.explore_every, 0)
        if not self.proposers:
            raise ConfigError("best_of.proposers is empty; give the proposers to choose from")
        if not 0 <= self.decay < 1:
            raise ConfigError(f"best_of.decay must be in [0, 1), got {self.decay!r}")

    def bind(self, context: ProposerContext) -> None:
        """Build all and bind them to the same engine."""
        self._parts, self._records = Parts.build(self.proposers, context), {}
        for proposer in self._parts.proposers:
            proposer.bind(context)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        records = [self._record(request) for request in requests]
        for record, request in zip(records, requests, strict=True):
            record.settle(request, self.decay)
        orders = [record.order(self.explore_every) for record in records]
        found = self._parts.ask(requests, num_draft_tokens, orders)
        for record, order, item in zip(records, orders, found, strict=True):
            self._note(record, order, None if item is None else item[0])
        return [None if item is None else item[1] for item in found]

    def stop(self, request_id: str) -> None:
        super().stop(request_id)
        self._records.pop(request_id, None)

    def _record(self, request: RequestView) -> Record:
        num = len(self._parts.proposers)
        return self._records.setdefault(request.request_id, Record([None] * num, [-1] * num))

    def _note(self, record: Record, order: Sequence[int], drafted_by: int | None) -> None:
        """Who was asked: all up to the one that had a draft; the others had none, so nothing was accepted."""
        asked = order if drafted_by is None else order[: order.index(drafted_by) + 1]
        for index in asked:
            record.last_turns[index] = record.num_turns
            if index != drafted_by:
                record.count(index, 0, self.decay)
        record.num_turns += 1
        record.drafted_by = drafted_by
