"""What would a smaller model say?

Leviathan et al. 2023, Chen et al. 2023: any causal language model drafts, its K/V in layers of its own in the target's
blocks. Always true: after each step its K/V stands for the same tokens as the target's, so that prefix hits and
preemption treat both alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proposers.growth import Growth
from proposers.model_growth import ModelReader
from proposers.vocabularies import same_vocabulary, shared_vocabulary
from specinfer.errors import ConfigError, check_count
from specinfer.kernels.rows import Stretch
from specinfer.protocols import Observation, ProposerContext, RequestView
from specinfer.types import Draft


@dataclass
class DraftModelProposer:
    """Drafts with a model of its own.

    model: a name, folder or hub id, as EngineConfig.model. share_vocabulary: the two tokenizers must agree token by
    token; false drafts through the tokens that both have.
    """

    model: str = ""
    num_draft_tokens: int = 4
    growth: Growth = field(default_factory=Growth)
    share_vocabulary: bool = True

    _reader: ModelReader = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for a length that cannot work."""
        check_count("draft_model.num_draft_tokens", self.num_draft_tokens, 0)

    def bind(self, context: ProposerContext) -> None:
        """Load the model, compare the vocabularies and claim its layers."""
        if not self.model:
            raise ConfigError("draft_model.model is not given: give a folder, a .gguf file or a hub id")
        loaded = context.load_model(self.model)
        model = loaded.model
        if self.share_vocabulary:
            mapped = same_vocabulary(
                context.tokenizer,
                loaded.tokenizer,
                vocab_size=context.vocab_size,
                draft_vocab_size=model.vocab_size,
                device=context.device,
            )
        else:
            mapped = shared_vocabulary(
                context.tokenizer, loaded.tokenizer, vocab_size=context.vocab_size, device=context.device
            )
        claim = context.resources.claim_kv(model.kv_layers, model.dtype, extra_slots=self.growth.extra_slots)
        self._reader = ModelReader(model, claim.layers, context, mapped)

    def start(self, request: RequestView) -> None:
        """Nothing is kept outside the cache."""

    def observe(self, observation: Observation) -> None:
        """Read every token that was computed and stands."""
        limit = self._reader.model.max_model_len
        stretches = [
            Stretch(request.token_ids[start : min(end, limit)], start, table)
            for request, start, end, table in zip(
                observation.requests, observation.starts, observation.ends, observation.block_tables, strict=True
            )
            if start < min(end, limit)
        ]
        if stretches:
            self._reader.read(stretches)

    def propose(self, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]) -> list[Draft | None]:
        return self._reader.propose(self.growth, requests, num_draft_tokens)

    def stop(self, request_id: str) -> None:
        """Nothing is kept outside the cache."""
