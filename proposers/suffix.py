"""What followed most often, in this text and in earlier outputs, when a text ended like this?

Suffix decoding (Oliaro et al. 2024, SuffixDecoding): one suffix trie a request, over prompt and output, and one a
tenant over finished outputs. Always true: a draft is a function of the request's tokens and of the finished outputs of
its own salt, with a one-hot q; nothing of one salt is shown to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specinfer.errors import ConfigError, check_count
from specinfer.protocols import ProposerContext, RequestView
from specinfer.types import Draft


@dataclass
class SuffixProposer:
    """Drafts the best continuation of any match of the last tokens, longer for longer matches.

    A match of m tokens is continued by the token of the highest count (of equally frequent ones, the one that is new
    since the shortest time), again and again, while count(match + continuation) / count(match) >= min_ratio, for at
    most factor * m + offset tokens. Its score is the sum of these ratios. The best score wins, of equal ones the longer
    match, and the request's own text before the finished outputs. max_depth: match and continuation together, tokens.
    max_bytes: memory for finished outputs, 0 for none; the oldest are forgotten first. is_tree: the continuations of
    the highest ratios, as a tree of as many nodes.
    """

    num_draft_tokens: int = 16
    max_depth: int = 32
    factor: float = 1.0
    offset: float = 0.0
    min_ratio: float = 0.1
    max_bytes: int = 64 << 20
    is_tree: bool = False

    # RequestTexts, FinishedOutputs and Reach of suffix_trie, which imports numba
    _texts: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _requests: dict[str, RequestView] = field(default_factory=dict, init=False, repr=False, compare=False)
    _outputs: Any = field(init=False, repr=False, compare=False)
    _reach: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for values that cannot work."""
        for name, low in (("num_draft_tokens", 0), ("max_depth", 2), ("max_bytes", 0)):
            check_count(f"suffix.{name}", getattr(self, name), low)
        for name in ("factor", "offset", "min_ratio"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
                raise ConfigError(f"suffix.{name} must be a number below 1e6, got {value!r}")
        if self.factor < 0:
            raise ConfigError(f"suffix.factor must be at least 0, got {self.factor!r}")
        if not 1e-3 <= self.min_ratio <= 1:
            raise ConfigError(f"suffix.min_ratio must be in [0.001, 1], got {self.min_ratio!r}")

    def bind(self, context: ProposerContext) -> None:
        """Compile the search, so that no request waits for it; begin without texts."""
        from proposers.suffix_trie import FinishedOutputs, Reach

        self._texts, self._requests = {}, {}
        self._outputs = FinishedOutputs(self.max_depth, self.max_bytes)
        self._reach = Reach(self.factor, self.offset, self.min_ratio, self.is_tree)

    def start(self, request: RequestView) -> None:
        """Keep it in view: its output is read when it ends."""
        self._requests[request.request_id] = request

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return [self._draft(request, length) for request, length in zip(requests, num_draft_tokens, strict=True)]

    def stop(self, request_id: str) -> None:
        """Its output is finished: let later requests of its salt match it."""
        self._texts.pop(request_id, None)
        request = self._requests.pop(request_id, None)
        if request is not None:
            self._outputs.add(request.cache_salt, request.token_ids[request.num_prompt_tokens :])

    def _draft(self, request: RequestView, length: int) -> Draft | None:
        if length < 1:
            return None
        found = self._text(request).continuation(length, self._reach)
        earlier = self._outputs.continuation(request.cache_salt, request.token_ids, length, self._reach)
        if earlier.score > found.score:
            found = earlier
        if not found.token_ids:
            return None
        return Draft(found.token_ids, parents=found.parents if self.is_tree else None)

    def _text(self, request: RequestView) -> Any:
        from proposers.suffix_trie import RequestText

        text = self._texts.get(request.request_id)
        if text is None:
            text = self._texts[request.request_id] = RequestText(self.max_depth)
        text.follow(request.token_ids)
        return text
