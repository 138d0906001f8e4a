"""How does a whole language model draft?

It reads the pending token, then its own guesses, in the slots behind the committed tokens. Always true: one forward a
depth for all requests; what is written behind the committed tokens is never read in a later step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from proposers.branching import Branching
from proposers.growth import Growth, grow
from proposers.vocabularies import VocabularyMap
from specinfer.kernels.rows import Stretch, flat_batch
from specinfer.protocols import CausalModel, ProposerContext, RequestView
from specinfer.types import Draft


@dataclass(frozen=True, slots=True)
class ModelReader:
    """A model over its layers of the paged cache, speaking the target's ids."""

    model: CausalModel
    kv_cache: Sequence[tuple[Tensor, Tensor]]
    context: ProposerContext
    map: VocabularyMap

    @torch.inference_mode()
    def read(self, stretches: Sequence[Stretch]) -> Tensor:
        """Logits of the stretches' wanted rows, over the tokens that may be drafted."""
        batch = flat_batch(stretches, self.context.block_size, self.context.device)
        batch.token_ids = self.map.read_ids(batch.token_ids)
        return self.map.spoken_logits(self.model.forward(batch, self.kv_cache))

    def propose(
        self, growth: Growth, requests: Sequence[RequestView], num_draft_tokens: Sequence[int]
    ) -> list[Draft | None]:
        """A draft a request; none where the model's context is full."""
        limit = self.model.max_model_len
        branchings = [
            Branching(request, min(length, limit - len(request.token_ids)))
            for request, length in zip(requests, num_draft_tokens, strict=True)
        ]
        going = [i for i, branching in enumerate(branchings) if branching.length > 0]
        drafts: list[Draft | None] = [None] * len(requests)
        if going:
            chosen = [branchings[i] for i in going]
            logits = self.read([_pending(b.request) for b in chosen])
            grown = grow(growth, self.context, chosen, logits, self.map.vocabulary, advance=self._advance)
            for i, draft in zip(going, grown, strict=True):
                drafts[i] = draft
        return drafts

    def _advance(self, branchings: Sequence[Branching]) -> Tensor:
        return self.read([b.stretch(len(b.request.token_ids), self.context.device) for b in branchings])


def _pending(request: RequestView) -> Stretch:
    """The last committed token, whose K/V no step has computed yet."""
    last = len(request.token_ids) - 1
    return Stretch(request.token_ids[last:], last, request.block_ids, logits=[0])
