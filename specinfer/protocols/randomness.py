"""Where does chance enter, and how is a draw named?

Two operations only, so that a test can enumerate every outcome. Always true: equal keys give equal noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from torch import Tensor


class Purpose(IntEnum):
    """What a draw decides. Draws of different purposes never share noise.

    A bonus token is the plain sample of its position, so it has no purpose of its own: with drafts rejected or
    without any, position j's SAMPLE noise is used at most once.
    """

    SAMPLE = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


@dataclass(frozen=True, slots=True)
class DrawKey:
    """Where a draw belongs; equal keys give equal noise, whatever the batch.

    `position` counts the request's output tokens, 0 for the first; `index` separates draws of one purpose at one
    position. A drafter counts its depth there: a position that was drafted behind a rejected token is drafted again.
    """

    request_seed: int
    position: int
    purpose: Purpose
    index: int = 0


class Randomness(Protocol):
    """The only source of chance: two operations, so that a test can enumerate every outcome."""

    def bernoulli(self, prob: float, key: DrawKey) -> bool:
        """True with probability min(prob, 1): u < prob, strict, with u uniform in [0, 1)."""
        ...

    def categorical(self, probs: Tensor, key: DrawKey) -> int:
        """An index drawn with weight probs [n], which need not sum to 1; never an index of weight 0."""
        ...
