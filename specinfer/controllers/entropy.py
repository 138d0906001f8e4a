"""Is the drafter's next token still a guess among few?

Always true: whether a draft grows to a depth depends on committed tokens, on draft tokens that are kept, and on the
drafter's law q there, never on a token drawn from that q; so the output law stays the target's (`confidence` says why).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import EngineLoad, RequestView


@dataclass
class EntropyController:
    """Drafts until the entropy of q exceeds `max_entropy` nats, at most `length` tokens (None: the proposer's own).

    The first token is always drafted: without it the call to the drafter was in vain. A length of 0 drafts nothing.
    """

    max_entropy: float = 2.0
    length: int | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless `max_entropy` is an entropy and `length` None or a count."""
        max_entropy: Any = self.max_entropy
        is_number = isinstance(max_entropy, int | float) and not isinstance(max_entropy, bool)
        if not is_number or not math.isfinite(max_entropy) or max_entropy < 0:
            raise ConfigError(f"controller.max_entropy must be a finite number of at least 0, got {max_entropy!r}")
        check_count("controller.length", self.length, 0, optional=True)

    def num_draft_tokens(self, request: RequestView, load: EngineLoad) -> int | None:
        return self.length

    def continues(self, request: RequestView, depth: int, probs: Tensor) -> bool:
        """Whether the drafter's law `probs` [vocab_size] at `depth` is certain enough to draw from."""
        return depth == 0 or float(torch.special.entr(probs).sum()) <= self.max_entropy  # entr(0) = 0

    def observe(self, request: RequestView, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Nothing is learnt."""

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""
