"""How many tokens to draft when the answer never changes?

Always true: the answer depends on neither the request nor the load.
"""

from __future__ import annotations

from dataclasses import dataclass

from specinfer.errors import check_count
from specinfer.protocols import EngineLoad, RequestView


@dataclass
class FixedController:
    """`length` draft tokens for every request and step; None leaves it to the proposer, 0 drafts nothing."""

    length: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless `length` is None or a count."""
        check_count("controller.length", self.length, 0, optional=True)

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        return self.length

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Nothing is learnt."""

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""
