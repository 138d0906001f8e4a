"""What would the target say after its first layers?

Self-speculation by early exit: the first N layers, the final norm and the head draft; no weights are added. Always
true: the layers' K/V of committed tokens is the target's own, which its forward has just written; what drafting writes
behind them is written again, the same or better, when the draft is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proposers.growth import Growth, Vocabulary
from proposers.model_growth import ModelReader
from proposers.vocabularies import VocabularyMap
from specinfer.errors import ConfigError, UnsupportedModelError, check_count
from specinfer.protocols import HiddenStateModel, ProposerContext, RequestView
from specinfer.types import Draft


@dataclass
class SelfDraftProposer:
    """Drafts with the target's first `num_layers` layers."""

    num_layers: int = 4
    num_draft_tokens: int = 2
    growth: Growth = field(default_factory=Growth)

    _reader: ModelReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that cannot work."""
        for name, low in (("num_layers", 1), ("num_draft_tokens", 0)):
            check_count(f"self_draft.{name}", getattr(self, name), low)

    def bind(self, context: ProposerContext) -> None:
        """Cut the target behind its first layers, and ask for slots to draft in."""
        target = context.target
        if not isinstance(target, HiddenStateModel):
            raise UnsupportedModelError(f"{target.name} cannot be cut behind its first layers")
        if self.num_layers >= target.num_layers:
            raise ConfigError(
                f"self_draft.num_layers={self.num_layers} leaves nothing out of the target's {target.num_layers} layers"
            )
        context.resources.claim_kv((), target.dtype, extra_slots=self.growth.extra_slots)
        model = target.prefix(self.num_layers)
        self._reader = ModelReader(model, context.kv_cache, context, VocabularyMap(None, Vocabulary(target.vocab_size)))

    def start(self, request: RequestView) -> None:
        """Nothing is kept outside the cache."""

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return self._reader.propose(self.growth, requests, num_draft_tokens)

    def stop(self, request_id: str) -> None:
        """Nothing is kept outside the cache."""
