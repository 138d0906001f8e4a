"""What followed the last time the text ended like this?

Prompt lookup: find the longest recent n-gram again, earlier in prompt and output, and draft what came after it. Always
true: no state, a draft is a pure function of the request's tokens; the proposal law q is one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


class Occurrence(Enum):
    """Which of several equally long matches to continue."""

    MOST_RECENT = "most_recent"
    FIRST = "first"


@dataclass
class NgramProposer:
    """Drafts the continuation of the longest match of `min_lookup` to `max_lookup` last tokens.

    Where the continuation reaches the end of the text it reads on in its own draft, as an LZ77 copy does, so that a
    text with a period is continued in its period.
    """

    num_draft_tokens: int = 4
    min_lookup: int = 1
    max_lookup: int = 3
    occurrence: Occurrence = Occurrence.MOST_RECENT

    _find: Callable[[NDArray[np.int64], int, int, bool], int] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Raise ConfigError for lengths that cannot work."""
        for name, low in (("num_draft_tokens", 0), ("min_lookup", 1), ("max_lookup", 1)):
            check_count(f"ngram.{name}", getattr(self, name), low)
        if self.max_lookup < self.min_lookup:
            raise ConfigError(
                f"ngram.max_lookup={self.max_lookup} is less than min_lookup={self.min_lookup}: "
                f"raise the one or lower the other"
            )
        occurrence: Any = self.occurrence
        if not isinstance(occurrence, Occurrence):
            choices = ", ".join(f"Occurrence.{choice.name}" for choice in Occurrence)
            raise ConfigError(f"ngram.occurrence must be one of {choices}, got {occurrence!r}")

    def bind(self, context: ProposerContext) -> None:
        """Compile the search, so that no request waits for it."""
        from proposers.ngram_numba import find_continuation

        self._find = find_continuation

    def start(self, request: RequestView) -> None:
        """Nothing is kept."""

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        find, is_first = self._find, self.occurrence is Occurrence.FIRST
        assert find is not None, "propose before bind"
        drafts: list[Draft | None] = []
        for request, length in zip(requests, num_draft_tokens, strict=True):
            token_ids = request.token_ids
            start = find(token_ids, self.min_lookup, self.max_lookup, is_first)
            drafts.append(None if start < 0 or length < 1 else Draft(_copy(token_ids, start, length)))
        return drafts

    def stop(self, request_id: str) -> None:
        """Nothing is kept."""


def _copy(token_ids: NDArray[np.int64], start: int, length: int) -> list[int]:
    copied: list[int] = token_ids[start : start + length].tolist()
    while len(copied) < length:
        copied.append(copied[len(copied) - (len(token_ids) - start)])
    return copied
