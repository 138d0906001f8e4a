"""How far is it clear how the output goes on?

Where its form forces the next tokens a long draft is safe; where the model chooses freely it is not. Always true: the
length depends on committed tokens alone, so the output law stays the target's.
"""

from __future__ import annotations

from dataclasses import dataclass

from specinfer.errors import check_count
from specinfer.protocols import EngineLoad, RequestView

CLOSED = frozenset({"forced", "enum", "key"})
"""The states in which the form says most of what comes"""


@dataclass
class FormController:
    """Drafts `closed_length` tokens where the form forces text or offers a few given ones, else `open_length`.

    free_length: for outputs without a form, None for the proposer's own.
    """

    closed_length: int = 12
    open_length: int = 3
    free_length: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for lengths that are no counts."""
        check_count("controller.closed_length", self.closed_length, 0)
        check_count("controller.open_length", self.open_length, 0)
        check_count("controller.free_length", self.free_length, 0, optional=True)

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        constraint = request.constraint
        if constraint is None:
            return self.free_length
        is_closed = constraint.rows().states[0] in CLOSED or bool(constraint.forced_bytes_behind(()))
        return self.closed_length if is_closed else self.open_length

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Nothing is learnt."""

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""
