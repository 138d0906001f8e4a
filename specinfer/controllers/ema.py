"""How much of this request's recent drafts was accepted?

Always true: a request's draft lengths depend on its own history alone, not on its company or on any clock, and are
chosen before anything is drafted; so the output law stays the target's and a seeded run repeats itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import EngineLoad, RequestView


@dataclass
class _History:
    """One request's length, its acceptance (None before the first draft), and steps on the plain path in a row."""

    length: int
    acceptance: float | None = None
    num_plain_steps: int = 0


@dataclass
class EmaController:
    """Lengthens a request's drafts by one while they do well, shortens them by one while they do badly.

    The measure is an exponential average of accepted / drafted, with weight `decay` on the past: above `high` the draft
    grows, up to `max_length`; below `low` it shrinks; in between it stays, so that noise does not move it. From
    `min_length` it falls to 0, the plain path, and then one draft of `min_length` tokens every `probe_interval` steps
    finds out whether the text has changed: accepted in a share above `high`, drafting is on again. Steps are counted in
    calls of `num_draft_tokens`, one a request and step.
    """

    low: float = 0.3
    high: float = 0.7
    decay: float = 0.8
    min_length: int = 1
    max_length: int = 8
    initial_length: int = 4
    probe_interval: int = 16

    _histories: dict[str, _History] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigError for the first field out of its range."""
        for name, ceiling in (("low", 1.0), ("high", 1.0), ("decay", math.nextafter(1, 0))):
            share: Any = getattr(self, name)
            is_number = isinstance(share, int | float) and not isinstance(share, bool)
            if not is_number or not 0 <= share <= ceiling:
                limit = "0 to 1" if ceiling == 1 else "0 to less than 1"
                raise ConfigError(f"controller.{name} must be a number from {limit}, got {share!r}")
        if self.low > self.high:
            raise ConfigError(f"controller.low={self.low} exceeds controller.high={self.high}: swap them")
        for name in ("min_length", "max_length", "initial_length", "probe_interval"):
            check_count(f"controller.{name}", getattr(self, name), 1)
        if not self.min_length <= self.initial_length <= self.max_length:
            raise ConfigError(
                f"controller.initial_length={self.initial_length} must lie between min_length={self.min_length} "
                f"and max_length={self.max_length}"
            )

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        history = self._histories.setdefault(request.request_id, _History(self.initial_length))
        if history.length > 0:
            return history.length
        history.num_plain_steps += 1
        if history.num_plain_steps < self.probe_interval:
            return 0
        history.num_plain_steps = 0
        return self.min_length

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        if num_draft_tokens < 1:
            return
        history = self._histories.setdefault(request.request_id, _History(self.initial_length))
        share = num_accepted_tokens / num_draft_tokens
        if history.length == 0 or history.acceptance is None:
            history.acceptance = share  # a probe is judged alone: what led to the plain path is old
        else:
            history.acceptance = self.decay * history.acceptance + (1 - self.decay) * share
        history.length = self._next_length(history.length, history.acceptance)

    def _next_length(self, length: int, acceptance: float) -> int:
        if acceptance > self.high:
            return max(self.min_length, min(length + 1, self.max_length))
        if acceptance < self.low:
            return length - 1 if length > self.min_length else 0
        return length

    def stop(self, request_id: str) -> None:
        self._histories.pop(request_id, None)
