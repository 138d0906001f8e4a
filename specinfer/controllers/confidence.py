"""Does the drafter itself believe in its next token?

Always true: whether a draft grows to a depth depends on committed tokens, on draft tokens that are kept, and on the
drafter's law q there, never on a token drawn from that q; so the output law stays the target's.

Stopping before the draw is exact: a verifier needs each draft token to have been drawn from the q that it divides by,
and given the tokens before it, a token that is drawn at all is drawn from the whole q. Drawing first, and dropping the
token where its own q(x) is low, would be biased: tokens that stay would follow q given that they stay, which is larger
than q for likely tokens and zero for the others, while the verifier still accepts with p(x) / q(x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import EngineLoad, RequestView


@dataclass
class ConfidenceController:
    """Drafts until max(q) is less than `threshold`, at most `length` tokens (None: the proposer's own).

    The first token is always drafted: without it the call to the drafter was in vain. A length of 0 drafts nothing.
    """

    threshold: float = 0.3
    length: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless `threshold` is a probability and `length` None or a count."""
        threshold: Any = self.threshold
        is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not is_number or not math.isfinite(threshold) or not 0 <= threshold <= 1:
            raise ConfigError(f"controller.threshold must be a number from 0 to 1, got {threshold!r}")
        check_count("controller.length", self.length, 0, optional=True)

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        return self.length

    def continues(self, request: RequestView, depth: int, probs: Tensor) -> bool:
        """Whether the drafter's law `probs` [vocab_size] at `depth` is peaked enough to draw from."""
        return depth == 0 or float(probs.max()) >= self.threshold

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Nothing is learnt."""

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""
